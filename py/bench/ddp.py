"""Time of a training step by DistributedDataParallel: backend shoal against Gloo, in one
interleaved run.

`torchrun --nproc-per-node 2 ddp.py [--rounds 10] [--steps 10]`. Two models of 12.6 M parameters,
one thread per rank, SGD, buckets as DistributedDataParallel makes them. Prints the least and the
median wall time and the median CPU time (all threads) of rank 0's steps, in milliseconds.
"""

import argparse
import copy
import os
import statistics
import time
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import shoal.torch


def perceptron():
    net = nn.Sequential(
        nn.Linear(1024, 2048),
        nn.ReLU(),
        nn.Linear(2048, 2048),
        nn.ReLU(),
        nn.Linear(2048, 2048),
        nn.ReLU(),
        nn.Linear(2048, 1024),
    )
    return net, torch.randn(64, 1024)


def transformer():
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 4), torch.randn(2, 64, 512)


def nothing(_, bucket):
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def blocking(group, bucket):
    """A hook that reduces on the thread of the backward pass."""
    dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, group)
    return nothing(None, bucket)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--models", default="perceptron,transformer")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    shoals = dist.new_group(backend="shoal")
    first = dist.get_rank() == 0
    if first:
        print(f"torch {torch.__version__}, {dist.get_world_size()} ranks, load {os.getloadavg()[0]:.1f}")
    for name in arguments.models.split(","):
        torch.manual_seed(0)
        base, samples = {"perceptron": perceptron, "transformer": transformer}[name]()
        cases = {}
        for case, group, hook in (
            ("no communication", None, None),
            ("buckets only", shoals, (None, nothing)),
            ("gloo", dist.group.WORLD, None),
            ("shoal", shoals, None),
            ("shoal, on the caller's thread", shoals, (shoals, blocking)),
            (
                "shoal, copied to registered memory",
                shoals,
                (shoal.torch.hooks.Registered(shoals), shoal.torch.hooks.registered),
            ),
            ("shoal, bf16", shoals, (shoals, shoal.torch.hooks.bf16)),
            ("gloo, bf16", dist.group.WORLD, (dist.group.WORLD, shoal.torch.hooks.bf16)),
        ):
            net = copy.deepcopy(base)
            if case == "gloo, bf16":
                from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

                hook = (dist.group.WORLD, bf16_compress_hook)
            if group is not None:
                net = DistributedDataParallel(net, process_group=group, gradient_as_bucket_view=True)
                if hook is not None:
                    net.register_comm_hook(*hook)
            cases[case] = net, torch.optim.SGD(net.parameters(), lr=1e-3)
        wall, cpu = defaultdict(list), defaultdict(list)
        for turn in range(arguments.rounds + 1):
            for case, (net, optimizer) in cases.items():
                dist.barrier()
                for step in range(arguments.steps):
                    began, used = time.perf_counter(), time.process_time()
                    optimizer.zero_grad(set_to_none=False)
                    net(samples).square().mean().backward()
                    optimizer.step()
                    # The first round makes buckets and warms up; the first step of each turn finds
                    # other caches.
                    if turn and step:
                        wall[case].append((time.perf_counter() - began) * 1e3)
                        cpu[case].append((time.process_time() - used) * 1e3)
        if first:
            print(
                f"\n{name}, {sum(it.numel() for it in base.parameters()) / 1e6:.1f} M parameters\n\n| case | least ms | median ms | median CPU ms |\n|---|---|---|---|"
            )
            for case in cases:
                print(
                    f"| {case} | {min(wall[case]):.1f} | {statistics.median(wall[case]):.1f} | {statistics.median(cpu[case]):.1f} |"
                )
            print("", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
