"""What distribution does to a training, and what tuning with large batch simulation does about it.
Handwritten digits (MNIST), one epoch of a part of them, some seconds to a minute each.

`torchrun --nproc-per-node 2 large_batch_experiments.py tune --data DIRECTORY` tunes the learning
rate of 8 workers on 2 ranks, and compares with what 2 ranks find that are only themselves.
`torchrun --nproc-per-node 4 ... check` trains as 8 workers with the same rates another way: plain
DistributedDataParallel with 8 workers' batches spread over the ranks (with 8 ranks, they are these
workers). `torchrun --nproc-per-node 2 ... sizes` has the cluster's size as a hyperparameter.
`torchrun --nproc-per-node 4 ... accuracy` shows 4 times the batch with an untouched rate, and a
parameter server whose workers do not wait, then what regains the accuracy. Each prints a table and
writes `--json`.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from mnist_ddp import images, network
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DistributedSampler

from shoal.parameter_server import ParameterServer
from shoal.torch import LargeBatch, LargeBatchSampler
from shoal.torch.backend import of
from shoal.torch.optim import LAMB, LARS, Schedule, layers, polynomial

WORKERS = 8
#: Of a worker.
BATCH = 32
RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 0.6)


def sgd(rate: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda model: torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)


class Digits:
    """Training and test pictures, and what is measured."""

    def __init__(self, directory: Path, samples: int):
        pictures, labels = images(directory, "train")
        self.inputs, self.labels = pictures[:samples], labels[:samples]
        self.test = images(directory, "t10k")

    def pass_(self, model: nn.Module, batch: list[int]) -> None:
        """Gradients of a batch."""
        nn.functional.cross_entropy(model(self.inputs[batch]), self.labels[batch]).backward()

    def train(
        self,
        make: Callable,
        workers: int,
        batch: int,
        *,
        schedule: Callable | None = None,
        simulate: bool = True,
        epochs: int = 1,
        seed: int = 0,
    ) -> dict:
        """As so many workers with a batch of so many each: by simulation, or with the workers'
        batches spread over the ranks that there are.
        """
        ranks = dist.get_world_size()
        torch.manual_seed(seed)
        model = DistributedDataParallel(network(), gradient_as_bucket_view=True)
        optimizer = make(model)
        if simulate:
            optimizer = LargeBatch(optimizer, workers, model=model)
            batches = LargeBatchSampler(self.inputs, batch, workers, seed=seed)
        else:
            sampler = DistributedSampler(self.inputs, seed=seed)
            batches = BatchSampler(sampler, batch * workers // ranks, drop_last=False)
        scheduler = None if schedule is None else schedule(optimizer)
        began, used = time.perf_counter(), time.process_time()
        passes = 0
        for epoch in range(epochs):
            (batches if simulate else sampler).set_epoch(epoch)
            for mine in batches:
                optimizer.zero_grad()
                self.pass_(model, mine)
                optimizer.step()
                if scheduler is not None:
                    scheduler.step()
                passes += 1
        costs = torch.tensor([time.perf_counter() - began, time.process_time() - used])
        dist.all_reduce(costs)
        steps = optimizer.steps if simulate else passes
        return {**self.tested(model.module), "steps": steps, "instance_s": costs[0].item(), "cpu_s": costs[1].item()}

    def tested(self, model: nn.Module) -> dict:
        """Loss and accuracy on the test pictures, of which each rank takes its share."""
        rank, ranks = dist.get_rank(), dist.get_world_size()
        inputs, labels = (it[rank::ranks] for it in self.test)
        with torch.no_grad():
            found = model(inputs)
            sums = torch.stack(
                [nn.functional.cross_entropy(found, labels, reduction="sum"), (found.argmax(1) == labels).sum().float()]
            )
        dist.all_reduce(sums)
        loss, right = (sums / len(self.test[1])).tolist()
        return {"loss": loss, "accuracy": right}

    def by_parameter_server(self, rate: float, consistency: str | int, slow: float) -> dict:
        """Workers push their gradients to a parameter server; the last one takes `slow` seconds
        longer for each.
        """
        rank, ranks = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        model = network()
        flat = nn.utils.parameters_to_vector(model.parameters()).detach()
        batches = list(BatchSampler(DistributedSampler(self.inputs, seed=0), BATCH, drop_last=False))
        group = of(None).native.split(list(range(ranks)))
        began = time.perf_counter()
        with ParameterServer({"weights": flat.numel()}, consistency=consistency, group=group) as server:
            if rank == 0:
                server.push("weights", flat, "assign")
            server.advance()
            dist.barrier()
            for batch in batches:
                server.pull("weights", flat)
                nn.utils.vector_to_parameters(flat, model.parameters())
                model.zero_grad()
                self.pass_(model, batch)
                if rank == ranks - 1:
                    time.sleep(slow)
                gradient = nn.utils.parameters_to_vector([it.grad for it in model.parameters()])
                server.push("weights", -rate / ranks * gradient)
                server.advance()
            dist.barrier()
            server.pull("weights", flat)
            dist.barrier()
        nn.utils.vector_to_parameters(flat, model.parameters())
        return {**self.tested(model), "steps": len(batches), "instance_s": ranks * (time.perf_counter() - began)}


def tune(digits: Digits) -> list[dict]:
    """The rate of 8 workers, on the ranks that there are; and what they find if they are only
    themselves.
    """
    rows = []
    for rate in RATES:
        rows.append({"what": f"as {WORKERS} workers", "rate": rate, **digits.train(sgd(rate), WORKERS, BATCH)})
    for rate in RATES:
        rows.append({"what": "as these ranks", "rate": rate, **digits.train(sgd(rate), dist.get_world_size(), BATCH)})
    return rows


def check(digits: Digits) -> list[dict]:
    """The same rates with 8 workers' batches and without simulation."""
    return [
        {"what": f"{WORKERS} workers' batches", "rate": rate, **digits.train(sgd(rate), WORKERS, BATCH, simulate=False)}
        for rate in RATES
    ]


def sizes(digits: Digits) -> list[dict]:
    """The cluster's size as a hyperparameter, with the rate scaled linearly and a warm-up of a
    tenth.
    """
    rows = []
    for workers in (2, 4, 8, 16, 32):
        steps = -(-len(digits.labels) // (workers * BATCH))
        for scaled in (False, True):
            options = (
                {"times": workers / 2, "warmup": steps // 10, "decay": polynomial(steps, 1)}
                if scaled
                else {"decay": polynomial(steps, 1)}
            )
            found = digits.train(
                sgd(0.01), workers, BATCH, schedule=lambda it, options=options: Schedule(it, **options)
            )
            rows.append(
                {
                    "what": f"{workers} workers, rate {'scaled' if scaled else 'untouched'}",
                    "rate": 0.01 * options.get("times", 1),
                    **found,
                }
            )
    return rows


def accuracy(digits: Digits) -> list[dict]:
    """Four times the batch costs accuracy; what regains it. Then a parameter server whose
    workers do not wait.
    """
    ranks, base = dist.get_world_size(), 0.005
    few = -(-len(digits.labels) // (ranks * BATCH))
    scaled = lambda it: Schedule(it, times=ranks, warmup=few // 10)  # noqa: E731
    decayed = lambda it: Schedule(it, warmup=few // 10, start=0.0, decay=polynomial(few, 2))  # noqa: E731
    cases = {
        f"one worker's batch of {BATCH}": (sgd(base), BATCH // ranks, None),
        f"{ranks} times the batch, rate untouched": (sgd(base), BATCH, None),
        f"{ranks} times the batch, rate scaled, warm-up": (sgd(base), BATCH, scaled),
        f"{ranks} times the batch, LARS": (
            lambda it: LARS(layers(it), lr=6.0, weight_decay=1e-4, trust=0.005),
            BATCH,
            decayed,
        ),
        f"{ranks} times the batch, LAMB": (lambda it: LAMB(layers(it), lr=0.08), BATCH, decayed),
    }
    rows = [
        {"what": what, **digits.train(make, ranks, batch, schedule=schedule)}
        for what, (make, batch, schedule) in cases.items()
    ]
    for consistency in ("synchronous", 0, 2, "unbounded"):
        what = {"synchronous": "in step", "unbounded": "unbounded"}.get(
            consistency, f"at most {consistency} steps ahead"
        )
        for rate in (0.05, 0.4):
            rows.append(
                {
                    "what": f"parameter server, rate {rate}, {what}",
                    "rate": rate,
                    **digits.by_parameter_server(rate, consistency, 0.03),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=["tune", "check", "sizes", "accuracy"])
    parser.add_argument("--data", type=Path, required=True, help="directory with the four files of MNIST")
    parser.add_argument("--samples", type=int, default=12_000, help="training pictures")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("shoal")
    digits = Digits(arguments.data, arguments.samples)
    rows = globals()[arguments.experiment](digits)
    if dist.get_rank() == 0:
        print(
            "| what | rate | steps | test loss | accuracy | instance s | CPU s of all ranks |\n|---|---|---|---|---|---|---|"
        )
        for it in rows:
            cpu = f"{it['cpu_s']:.1f}" if "cpu_s" in it else ""
            print(
                f"| {it['what']} | {it.get('rate', '')} | {it['steps']} | {it['loss']:.4f} | {it['accuracy']:.4f} | {it['instance_s']:.1f} | {cpu} |"
            )
        if arguments.json:
            arguments.json.write_text(
                json.dumps({"experiment": arguments.experiment, "ranks": dist.get_world_size(), "rows": rows}, indent=1)
                + "\n"
            )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
