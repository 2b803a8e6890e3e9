"""What large batch simulation costs a pass in CPU time, on a model so small that all of a pass is
cost: `LargeBatch` against accumulation by hand, in turns.

`torchrun --nproc-per-node 2 large_batch_cpu.py`. Prints medians and least values of the main
thread's CPU time of a pass on rank 0, in microseconds, which other programs on the machine hardly
change.
"""

import statistics
import time

import torch
import torch.distributed as dist
from large_batch import by_hand, by_large_batch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from shoal.torch import LargeBatch

PASSES, STEPS, TURNS = 4, 10, 40


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("shoal")
    samples = torch.randn(2, 8)
    cases = []
    for run in (by_hand, by_large_batch):
        model = DistributedDataParallel(
            nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)]), gradient_as_bucket_view=True
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        if run is by_large_batch:
            optimizer = LargeBatch(optimizer, PASSES * dist.get_world_size(), model=model)
        cases.append((run, model, optimizer, []))
    for turn in range(TURNS):
        for run, model, optimizer, taken in cases:
            began = time.thread_time()
            for _ in range(STEPS):
                run(model, optimizer, samples, PASSES)
            # The first turns make buckets and warm up.
            if turn >= 5:
                taken.append((time.thread_time() - began) * 1e6 / (STEPS * PASSES))
    if dist.get_rank() == 0:
        for name, (*_, taken) in zip(("by hand", "LargeBatch"), cases, strict=True):
            print(f"{name}: median {statistics.median(taken):.1f} us of CPU time a pass, least {min(taken):.1f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
