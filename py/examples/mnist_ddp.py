"""Handwritten digits (MNIST) by DistributedDataParallel on CPUs.

On two ranks of this machine: `torchrun --nproc-per-node 2 mnist_ddp.py --data DIRECTORY`. Each rank
has its share of every batch, so the losses are those of one process (`--nproc-per-node 1`) with the
same `--batch`, up to rounding. `--backend gloo` does the same with torch's own backend.
`--compress top-k` and others send less.
"""

import argparse
import gzip
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import shoal.torch


def idx(path: Path) -> torch.Tensor:
    """A file of the MNIST distribution: four bytes that name type and dimensions, a big-endian
    word for each dimension, bytes.
    """
    with gzip.open(path) as file:
        content = bytearray(file.read())
    dimensions = content[3]
    shape = [int.from_bytes(content[4 + 4 * at : 8 + 4 * at], "big") for at in range(dimensions)]
    return torch.frombuffer(content, dtype=torch.uint8, offset=4 + 4 * dimensions).view(shape)


def images(directory: Path, which: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures of mean 0 and deviation 1, and what they show."""
    pixels = idx(directory / f"{which}-images-idx3-ubyte.gz")
    labels = idx(directory / f"{which}-labels-idx1-ubyte.gz")
    return ((pixels.float() / 255 - 0.1307) / 0.3081).unsqueeze(1), labels.long()


def network() -> nn.Module:
    """Two convolutions and two linear layers; 205,896 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 122),
        nn.ReLU(),
        nn.Linear(122, 10),
    )


def compress(net: DistributedDataParallel, how: str):
    """Lets gradients be compressed; gives what the compressor remembers and counts, if it does."""
    hooks = shoal.torch.hooks
    if how in ("bf16", "fp16"):
        net.register_comm_hook(None, getattr(hooks, how))
    if how in ("none", "bf16", "fp16"):
        return None
    state = {"int8": hooks.Int8, "top-k": lambda: hooks.TopK(0.01), "powersgd": lambda: hooks.PowerSgd(2)}[how]()
    net.register_comm_hook(state, hooks.compressed)
    return state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory with the four files of MNIST")
    parser.add_argument("--steps", type=int, default=468, help="batches to train on (468 are one epoch of 128)")
    parser.add_argument("--batch", type=int, default=128, help="pictures per step, of all ranks together")
    parser.add_argument("--backend", default="shoal")
    parser.add_argument("--compress", default="none", choices=["none", "bf16", "fp16", "int8", "top-k", "powersgd"])
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = DistributedDataParallel(network(), gradient_as_bucket_view=True)
    state = compress(net, arguments.compress)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    pictures, labels = images(arguments.data, "train")
    # All ranks draw the same order, and each takes its share of every batch.
    order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(0))
    began = time.perf_counter()
    for step in range(arguments.steps):
        at = step * arguments.batch % (len(order) - arguments.batch)
        share = order[at : at + arguments.batch].chunk(size)[rank]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(pictures[share]), labels[share])
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == arguments.steps - 1:
            whole = loss.detach() * len(share) / arguments.batch
            dist.all_reduce(whole)
            if rank == 0:
                print(f"step={step} loss={whole.item():.5f}", flush=True)
    elapsed = time.perf_counter() - began

    pictures, labels = images(arguments.data, "t10k")
    net.eval()
    with torch.no_grad():
        right = (net(pictures[rank::size]).argmax(1) == labels[rank::size]).sum()
    dist.all_reduce(right)
    if rank == 0:
        print(f"accuracy={right.item() / len(labels):.4f} ranks={size} seconds={elapsed:.1f}", flush=True)
        if state is not None:
            print(f"bytes={state.wire_bytes} uncompressed={state.plain_bytes}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
