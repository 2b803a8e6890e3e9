"""How long ranks of a pipeline wait, beside what the schedule says:
`torchrun --nproc-per-node 2 bubble_smp.py`.

Stages are equal modules that sleep, twice as long backward as forward. Two shares are printed,
medians of the steps: idle by `model.timeline`, and by the step's length against the sleeps, where
Python and messages count as idle.
"""

import argparse
import statistics
import time

import torch
from torch import nn

import smdistributed.modelparallel.torch as smp
from shoal.parallel import schedule
from smdistributed.modelparallel.torch import launch


class Slow(nn.Module):
    """Takes its time in both directions."""

    def __init__(self, seconds: float):
        super().__init__()
        self.linear, self.seconds = nn.Linear(4, 4), seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        x = self.linear(x)
        x.register_hook(lambda grad: time.sleep(2 * self.seconds))
        return x


@smp.step
def train_step(model, x):
    loss = model(x).square().mean()
    model.backward(loss)
    return loss


def measure(pipeline: str, microbatches: int, seconds: float, steps: int) -> tuple[float, float]:
    """Idle shares by the timeline and by the step's length."""
    launch.forget()
    stages = 2
    smp.init(
        {
            "partitions": stages,
            "microbatches": microbatches,
            "pipeline": pipeline,
            "auto_partition": False,
            "default_partition": 0,
        }
    )
    net = nn.Sequential(*(Slow(seconds) for _ in range(stages)))
    for stage, it in enumerate(net):
        smp.set_partition(it, stage)
    model = smp.DistributedModel(net)
    idle, overall = [], []
    for _ in range(steps + 1):
        smp.barrier()
        train_step(model, torch.randn(4 * microbatches, 4))
        begin = min(smp.allgather(min(it[2] for it in model.timeline)))
        end = max(smp.allgather(max(it[3] for it in model.timeline)))
        busy = sum(smp.allgather(sum(it[3] - it[2] for it in model.timeline)))
        idle.append(1 - busy / (stages * (end - begin)))
        overall.append(1 - 3 * seconds * microbatches / (end - begin))
    # The first step learns.
    return statistics.median(idle[1:]), statistics.median(overall[1:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0.05, help="of a module's forward pass")
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for pipeline, name in (("simple", "gpipe"), ("interleaved", "dynamic")):
        for microbatches in (2, 4, 8):
            wanted = (
                schedule(name, 2, microbatches, active=4 if name == "dynamic" else None)
                .check(forward=1, input=1, weight=1)
                .idle
            )
            idle, overall = measure(pipeline, microbatches, args.seconds, args.steps)
            if smp.rank() == 0:
                print(
                    f"{pipeline}, {microbatches} microbatches: schedule {wanted:.1%}, timeline {idle:.1%}, length {overall:.1%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
