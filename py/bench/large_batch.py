"""What large batch simulation costs a pass: `LargeBatch` against accumulation by hand, in one
interleaved run.

`torchrun --nproc-per-node 2 large_batch.py [--passes 4] [--rounds 12] [--steps 4]`. A perceptron of
12.6 M parameters, one thread per rank, SGD with momentum. Prints the least and the median wall time
of a pass (a step of the optimizer divided by its passes) of rank 0, in milliseconds, and how much
the median of each turn's ratio to by hand is above 1.
"""

import argparse
import copy
import os
import statistics
import time
from collections import defaultdict
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import shoal.torch
from shoal.torch import LargeBatch


def perceptron():
    return nn.Sequential(
        nn.Linear(1024, 2048),
        nn.ReLU(),
        nn.Linear(2048, 2048),
        nn.ReLU(),
        nn.Linear(2048, 2048),
        nn.ReLU(),
        nn.Linear(2048, 1024),
    )


def by_hand(model, optimizer, samples, passes):
    """What a careful script does: the loss is divided, and all passes but the last do not
    communicate.
    """
    optimizer.zero_grad()
    for number in range(passes):
        with nullcontext() if number == passes - 1 else model.no_sync():
            (model(samples).square().mean() / passes).backward()
    optimizer.step()


def by_large_batch(model, optimizer, samples, passes):
    """What a script does that knows nothing of passes."""
    for _ in range(passes):
        optimizer.zero_grad()
        model(samples).square().mean().backward()
        optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--samples", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("shoal")
    ranks, passes = dist.get_world_size(), arguments.passes
    torch.manual_seed(0)
    base, samples = perceptron(), torch.randn(arguments.samples, 1024)

    def sgd(model):
        return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    cases = {}
    for views in (True, False):
        name = "buckets are the gradients" if views else "buckets apart"
        for case in ("by hand", "by hand, registered memory", "LargeBatch"):
            model = DistributedDataParallel(copy.deepcopy(base), gradient_as_bucket_view=views)
            if case == "by hand, registered memory":
                model.register_comm_hook(shoal.torch.hooks.Registered(), shoal.torch.hooks.registered)
            large = case == "LargeBatch"
            optimizer = LargeBatch(sgd(model), passes * ranks, model=model) if large else sgd(model)
            cases[f"{name}: {case}"] = (by_large_batch if large else by_hand), model, optimizer
    taken = defaultdict(list)
    ratios = defaultdict(list)
    for turn in range(arguments.rounds + 1):
        for case, (run, model, optimizer) in cases.items():
            dist.barrier()
            times = []
            for _ in range(arguments.steps):
                began = time.perf_counter()
                run(model, optimizer, samples, passes)
                times.append((time.perf_counter() - began) * 1e3 / passes)
            # The first round makes buckets and warms up; the first step of a turn finds other
            # caches.
            if turn:
                taken[case].append(min(times[1:]))
                hand = case.split(":")[0] + ": by hand"
                ratios[case].append(taken[case][-1] / taken[hand][-1])
    if dist.get_rank() == 0:
        print(f"torch {torch.__version__}, {ranks} ranks, {passes} passes a step, load {os.getloadavg()[0]:.1f}\n")
        print("| case | least ms a pass | median ms a pass | above by hand |\n|---|---|---|---|")
        for case, times in taken.items():
            print(
                f"| {case} | {min(times):.2f} | {statistics.median(times):.2f} | {(statistics.median(ratios[case]) - 1) * 100:+.1f} % |"
            )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
