"""A user's script: handwritten digits by DistributedDataParallel, as for SageMaker's PyTorch
image.

Each rank has its share of every batch, so the losses are those of one process up to rounding;
rank 0 trains alone, too, to show that.
"""

import argparse
import gzip
import json
import os
import signal
import sys

# Without it MKL's results on Intel's processors may depend on where arrays lie in memory, and two
# runs differ in their last bits. Read at the import of torch.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def idx(name):
    """A file of MNIST: four bytes that name type and dimensions, a big-endian word for each
    dimension, bytes.
    """
    with gzip.open(os.path.join(os.environ["SM_CHANNEL_TRAIN"], name)) as file:
        content = bytearray(file.read())
    sizes = [int.from_bytes(content[4 * at : 4 * at + 4], "big") for at in range(1, content[3] + 1)]
    return torch.frombuffer(content, dtype=torch.uint8, offset=4 + 4 * content[3]).view(sizes)


def samples(part):
    pictures, labels = idx(f"{part}-images-idx3-ubyte.gz"), idx(f"{part}-labels-idx1-ubyte.gz")
    return (pictures[:10000].float() / 255 - 0.1307) / 0.3081, labels[:10000].long()


def say(line):
    """Prints in one write, as ranks of one instance share its log."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def train(size, rank, steps, batch, checkpoint=None, wait_at=None):
    """Losses of all ranks together, and the model. With a checkpoint it goes on from that and
    writes it after every tenth step; at a step to wait at it does, if it has begun at the first
    one.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    net = DistributedDataParallel(model) if size > 1 else model
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    pictures, labels = samples("train")
    losses = []
    if checkpoint and os.path.exists(checkpoint):
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        losses = saved["losses"]
        say(f"rank {rank} goes on at step {len(losses)}")
    begun = len(losses)
    for step in range(begun, steps):
        if begun == 0 and step == wait_at:
            say(f"rank {rank} waits at step {step}")
            signal.pause()
        share = torch.arange(step * batch, (step + 1) * batch).remainder(len(labels)).chunk(size)[rank]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(pictures[share]), labels[share])
        loss.backward()
        optimizer.step()
        whole = loss.detach() / size
        if size > 1:
            dist.all_reduce(whole)
        losses.append(whole.item())
        if checkpoint and rank == 0 and len(losses) % 10 == 0:
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses},
                checkpoint + ".new",
            )
            os.replace(checkpoint + ".new", checkpoint)
    return losses, model


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--checkpoint")
    parser.add_argument("--wait-at", type=int)
    given, _ = parser.parse_known_args()
    if given.backend == "smddp":
        import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
    torch.set_num_threads(1)
    dist.init_process_group(given.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    say(f"{dist.get_backend()}: rank {rank} of {size} on {os.environ['SM_CURRENT_HOST']}")
    losses, model = train(size, rank, given.steps, given.batch_size, given.checkpoint, given.wait_at)
    dist.destroy_process_group()
    if rank == 0:
        pictures, labels = samples("t10k")
        accuracy = (model(pictures).argmax(1) == labels).float().mean().item()
        print(f"loss={losses[-1]:.5f}; accuracy={accuracy:.4f};")
        alone, _ = train(1, 0, given.steps, given.batch_size)
        with open(os.path.join(os.environ["SM_MODEL_DIR"], "losses.json"), "w") as file:
            json.dump({"of_all": losses, "alone": alone}, file)
        torch.save(model.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
