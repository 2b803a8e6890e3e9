"""A rank of test_elastic.py: trains elastically and says each step on standard output; at the
end, how often each sample was read, and the weights.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

import shoal.torch
from shoal.elastic import Samples
from shoal.torch.elastic import State, run

COUNT, WORKERS, BATCH, EPOCHS = 200, 4, 3, 2


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def data() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    samples = torch.randn(COUNT, 8)
    return samples, samples.sum(1, keepdim=True)


def descent(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def gradients(net: nn.Module, indices: list[int], total: int, xs: torch.Tensor, ys: torch.Tensor) -> None:
    """Adds those of these samples, of a step of so many."""
    ((net(xs[indices]) - ys[indices]).square().sum() / total).backward()


def alone() -> list[list[float]]:
    """The weights after training undisturbed, in one process."""
    net, (xs, ys) = model(), data()
    optimizer, samples = descent(net), Samples(COUNT, workers=WORKERS, batch=BATCH, seed=5)
    while samples.epoch < EPOCHS:
        optimizer.zero_grad()
        for part in samples.parts(0, 1):
            gradients(net, part.indices, samples.total(), xs, ys)
        optimizer.step()
        samples.finish()
    return [it.flatten().tolist() for it in net.parameters()]


def main(pause: float, until: str) -> None:
    torch.set_num_threads(1)
    net, (xs, ys) = model(), data()
    optimizer = descent(net)
    samples = Samples(COUNT, workers=WORKERS, batch=BATCH, seed=5)
    state = State(
        model=net,
        optimizer=optimizer,
        samples=samples,
        counts=torch.zeros(EPOCHS, COUNT, dtype=torch.int64),
        sizes=[],
        steps=0,
    )
    resets = []
    state.on_reset(lambda: resets.append(state.steps))

    def train(state: State) -> None:
        world = state.world
        assert (dist.get_rank(), dist.get_world_size()) == (world.rank, world.size)
        print(json.dumps({"here": world.rank, "of": world.size}), flush=True)
        while samples.epoch < EPOCHS:
            # In the middle of the training it waits until the test has made its changes.
            while state.steps == 20 and not world.broadcast([int(os.path.exists(until))])[0]:
                time.sleep(0.01)
                state.check()
            epoch = samples.epoch
            optimizer.zero_grad()
            read = torch.zeros(COUNT, dtype=torch.int64)
            for part in samples.parts(world.rank, world.size):
                gradients(net, part.indices, samples.total(), xs, ys)
                read[part.indices] += 1
            for it in [read, *(it.grad for it in net.parameters())]:
                dist.all_reduce(it)
            optimizer.step()
            state.counts[epoch] += read
            state.sizes.append(world.size)
            state.steps += 1
            samples.finish()
            print(json.dumps({"step": state.steps, "rank": world.rank, "size": world.size}), flush=True)
            time.sleep(pause)
            state.commit()

    try:
        run(train, state)
    except shoal.torch.elastic.Dismissed as gone:
        print(json.dumps({"dismissed": gone.host}), flush=True)
        raise
    last = {
        "rank": dist.get_rank(),
        "size": dist.get_world_size(),
        "once": bool(state.counts.eq(1).all()),
        "sizes": state.sizes,
        "resets": len(resets),
        "weights": [it.flatten().tolist() for it in net.parameters()],
    }
    print(json.dumps(last), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "alone":
        torch.set_num_threads(1)
        print(json.dumps(alone()), flush=True)
        # The result is what is asked for. Once, torch's threads kept this interpreter from exiting.
        os._exit(0)
    else:
        main(float(sys.argv[1]), sys.argv[2])
