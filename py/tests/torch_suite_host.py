"""Runs tests of torch's own suite for process groups
(`torch.testing._internal.distributed.distributed_test`): reads a test's name per line, and answers
each with a line of JSON.

torch starts a Python for each rank of each test, which imports torch. Here ranks are forks of this
process, which has imported it, and runs no operation. Tests that want a GPU for each rank run on
the processor: their tensors and models are moved nowhere. What they check is the same, if it is not
of CUDA.
"""

import contextlib
import functools
import json
import os
import sys
import tempfile
import time
import unittest

BACKEND, SIZE = sys.argv[1], 4

os.environ.update(
    # As Gloo: this is what decides which tests are skipped when the module is imported.
    BACKEND="gloo",
    WORLD_SIZE=str(SIZE),
    MASTER_ADDR="127.0.0.1",
    TEMP_DIR=tempfile.mkdtemp(),
    DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=os.environ.get("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "60"),
    OMP_NUM_THREADS="1",
)

import torch  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.testing._internal import common_distributed as common  # noqa: E402


def is_gpu(device: object) -> bool:
    """Whether a test means a GPU by this."""
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return (
        not isinstance(device, bool)
        and isinstance(device, int)
        or isinstance(device, str)
        and device.startswith("cuda")
    )


class OnTheProcessor(TorchFunctionMode):
    """Makes tensors on the processor wherever a test asks for a GPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Calls the function without GPUs among what it is given."""
        kwargs = dict(kwargs or {})
        if is_gpu(kwargs.get("device")):
            kwargs["device"] = "cpu"
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.to and len(args) > 1 and is_gpu(args[1]):
            args = (args[0], "cpu", *args[2:])
        return func(*args, **kwargs)


def stand_in_for_gpus() -> None:
    """Lets those tests run that want GPUs: before the suite is imported, whose decorators look
    for them.
    """
    as_it_is = lambda *arguments, **options: lambda test: test  # noqa: E731
    common.skip_if_lt_x_gpu = common.nccl_skip_if_lt_x_gpu = as_it_is
    common.skip_if_no_gpu = lambda test: test
    common.skip_if_small_worldsize = lambda test: test
    common.init_multigpu_helper = lambda size, backend: {rank: [rank] for rank in range(size)}
    torch.nn.Module.cuda = lambda module, device=None: module
    to = torch.nn.Module.to
    torch.nn.Module.to = lambda module, *arguments, **options: (
        module
        if arguments and is_gpu(arguments[0]) or is_gpu(options.get("device"))
        else to(module, *arguments, **options)
    )
    for name in ("set_device", "manual_seed", "synchronize", "empty_cache"):
        setattr(torch.cuda, name, lambda *arguments, **options: None)
    torch.cuda.current_device = lambda: 0
    torch.cuda.device = lambda device: contextlib.nullcontext()
    plain = torch.nn.parallel.DistributedDataParallel.__init__

    @functools.wraps(plain)
    def on_the_processor(self, module, device_ids=None, output_device=None, **options):
        plain(self, module, **options)

    torch.nn.parallel.DistributedDataParallel.__init__ = on_the_processor


stand_in_for_gpus()

from torch.testing._internal.distributed import distributed_test as suite  # noqa: E402

suite.BACKEND = BACKEND

for backends in suite.DistTestCases.backend_feature.values():
    if "gloo" in backends:
        backends.add(BACKEND)


class TorchSuite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    """The suite over one backend."""

    def run_test(self, name, pipe):
        """A rank's part, whose group is made."""
        if "accumulate_gradients_no_sync" in name:
            # Its body knows Gloo's and MPI's names.
            suite.BACKEND = "gloo"
        with OnTheProcessor():
            super().run_test(name, pipe)

    def setUp(self):
        """Starts the ranks."""
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


def run(name: str) -> dict:
    """A test's outcome: passed, failed or skipped, and why."""
    began = time.monotonic()
    result = unittest.TestResult()
    TorchSuite(name).run(result)
    why = [text for _, text in result.failures + result.errors]
    skipped = [reason for _, reason in result.skipped]
    outcome = "failed" if why else "skipped" if skipped else "passed"
    return {"name": name, "outcome": outcome, "why": "\n".join(why + skipped), "seconds": time.monotonic() - began}


def main() -> None:
    """Answers on the standard output as it was; what tests print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    names = sorted(name for name in dir(TorchSuite) if name.startswith("test_"))
    print(json.dumps({"torch": torch.__version__, "tests": names}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(line.strip())), file=answers, flush=True)


if __name__ == "__main__":
    main()
