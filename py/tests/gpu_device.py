"""Where the checks of test_gpu.py put their tensors, and what they compare."""

import os

import torch

IS_GPU = os.environ.get("SHOAL_GPU_TESTS_ON") != "cpu"
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", "0"))
if IS_GPU:
    # Ranks see one GPU, which they share, or one each.
    DEVICE = torch.device("cuda", LOCAL_RANK % torch.cuda.device_count())
    torch.cuda.set_device(DEVICE)
    # Sums in the order and the precision of the processor, as far as there is one.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.use_deterministic_algorithms(True, warn_only=True)
else:
    DEVICE = torch.device("cpu")

#: Cycles of a kernel that does nothing: some 50 ms, longer than anything that does not wait for it.
LONG = 100_000_000


def sleep() -> None:
    """A long kernel on the current stream."""
    torch.cuda._sleep(LONG)


def near(got, wanted, tolerance=1e-5):
    """Equal within the tolerance, wherever they are."""
    torch.testing.assert_close(
        torch.as_tensor(got).cpu(), torch.as_tensor(wanted).cpu(), atol=tolerance, rtol=tolerance, check_dtype=False
    )


def network(width=12, seed=1):
    """A small one on the device; on each rank another, so that it must be given to all."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(width, 40), torch.nn.Tanh(), torch.nn.Linear(40, 1)).to(DEVICE)


def batches(count, width=12, seed=2):
    """Inputs and targets of so many workers, for the same steps on all ranks."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 8, width, generator=generator).to(DEVICE)
    return inputs, inputs.sum(-1, keepdim=True).tanh()


def same_weights(model, wanted, tolerance=1e-5):
    """Of two models."""
    for one, other in zip(model.parameters(), wanted.parameters(), strict=True):
        assert one.device == DEVICE, one.device
        near(one.detach(), other.detach(), tolerance)
