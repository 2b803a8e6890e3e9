"""One rank of `cargo xtask bench ddp`: a perceptron trained by DistributedDataParallel over
Gloo, which times its own steps.

Started by torchrun. Rank 0 prints its loss as often as it is told to, and at the end one line of
JSON: seconds of the median step, of the one that a tenth of them beat, and of all together,
processor seconds of its process meanwhile, its last loss, and how many ranks there were.
"""

import argparse
import json
import resource
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
for name in ("--steps", "--warm-up", "--every"):
    parser.add_argument(name, type=int, required=True)
given = parser.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
pictures, labels = torch.rand(4096, 784), torch.randint(10, (4096,))
net = DistributedDataParallel(
    nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def step(number):
    share = torch.arange(number * 64 * size, (number + 1) * 64 * size).remainder(len(labels)).chunk(size)[rank]
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(pictures[share]), labels[share])
    loss.backward()
    optimizer.step()
    return loss


for number in range(given.warm_up):
    step(number)
dist.barrier()
times, used, began = [], cpu(), time.perf_counter()
for number in range(given.steps):
    since = time.perf_counter()
    loss = step(number)
    if rank == 0 and number % given.every == 0:
        print(f"step={number}; loss={loss.item():.5f};", flush=True)
    times.append(time.perf_counter() - since)
whole, used = time.perf_counter() - began, cpu() - used
if rank == 0:
    fast = statistics.quantiles(times, n=10)[0] if len(times) > 1 else times[0]
    told = {
        "median_s": statistics.median(times),
        "fast_s": fast,
        "whole_s": whole,
        "cpu_s": used,
        "loss": loss.item(),
        "ranks": size,
    }
    print(json.dumps(told), flush=True)
dist.destroy_process_group()
