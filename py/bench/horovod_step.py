"""A training step with `hvd.DistributedOptimizer`, and Horovod's operations, timed.

    horovodrun -np 2 python py/bench/horovod_step.py [--rounds 5] [--steps 20]

The network has layers of 784, 2320, 2320, 2320 and 10 (12,613,850 parameters), batch 64, SGD with
momentum; one thread for each rank. Beside it, in turns: one rank alone (no communication), and
DistributedDataParallel on the backend `shoal` where this is Shoal's Horovod, else on Gloo. It runs
under real Horovod in another environment as well: nothing but `horovod.torch` and torch is imported
then. Prints medians in milliseconds on rank 0.
"""

import argparse
import os
import socket
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

import horovod.torch as hvd

LAYERS = (784, 2320, 2320, 2320, 10)
BATCH = 64


def network() -> nn.Module:
    """The perceptron, the same on all ranks."""
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for before, after in zip(LAYERS, LAYERS[1:], strict=False):
        parts += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def steps(model: nn.Module, optimizer: torch.optim.Optimizer):
    """A function that does one step."""
    x, y = torch.randn(BATCH, LAYERS[0]), torch.randint(0, LAYERS[-1], (BATCH,))

    def one() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return one


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of all cases."""
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def cases() -> dict:
    """What is timed, by name: a function that does it once, and how often."""
    found = {}
    alone = network()
    found["step: one rank alone"] = steps(alone, sgd(alone))
    model = network()
    found["step: hvd.DistributedOptimizer"] = steps(
        model, hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters())
    )
    for name, views in (("", False), (", bucket views", True)):
        model = nn.parallel.DistributedDataParallel(network(), gradient_as_bucket_view=views)
        found[f"step: DistributedDataParallel ({dist.get_backend()}{name})"] = steps(model, sgd(model))
    large = torch.ones(25_000_000)
    found["allreduce_ of 25 M float32, sum"] = lambda: hvd.allreduce_(large, op=hvd.Sum, name="large")
    found["allreduce_ of 25 M float32, average"] = lambda: hvd.allreduce_(large, name="large")
    some = [torch.ones(1000) for _ in range(1000)]
    found["1,000 x 1,000 floats, grouped_allreduce_"] = lambda: hvd.grouped_allreduce_(some, op=hvd.Sum, name="some")

    def loop() -> None:
        for handle in [hvd.allreduce_async_(it, op=hvd.Sum, name=f"one.{number}") for number, it in enumerate(some)]:
            hvd.synchronize(handle)

    found["1,000 x 1,000 floats, loop of allreduce_async_"] = loop
    tiny = torch.ones(1)
    found["allreduce_ of 4 B"] = lambda: hvd.allreduce_(tiny, op=hvd.Sum, name="tiny")
    return found


def init_torch() -> None:
    """torch's own process group beside Horovod's world: DistributedDataParallel needs it."""
    try:
        import shoal.torch  # noqa: F401 (registers the backend)

        backend = "shoal"
    except ImportError:
        backend = "gloo"
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        port = it.getsockname()[1]
    port = hvd.broadcast_object(port, 0)
    os.environ.pop("SHOAL_COMM_DIRECTORY", None)
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=hvd.rank(), world_size=hvd.size())


def main() -> None:
    """Times all cases in turns."""
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--rounds", type=int, default=5)
    given.add_argument("--steps", type=int, default=10, help="how often each case is done in a round")
    given.add_argument("--only", default="", help="cases whose name has this")
    given = given.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    init_torch()
    chosen = {name: case for name, case in cases().items() if given.only in name}
    times: dict[str, list[float]] = {name: [] for name in chosen}
    for number in range(given.rounds + 1):
        for name, case in chosen.items():
            count = given.steps * (50 if "4 B" in name else 1)
            hvd.barrier()
            took = []
            for _ in range(count):
                began = time.perf_counter()
                case()
                took.append(time.perf_counter() - began)
            if number:
                times[name].append(statistics.median(took) * 1e3)
    if hvd.rank() == 0:
        width = max(map(len, times))
        for name, values in times.items():
            print(
                f"{name:{width}} {statistics.median(values):9.3f} ms  ({min(values):.3f} to {max(values):.3f})",
                flush=True,
            )
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
