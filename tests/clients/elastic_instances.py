"""A rank of an elastic job of the platform: the training of elastic_ranks.py, which waits in
mid-epoch until the job was on these numbers of instances.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from elastic_ranks import BATCH, COUNT, EPOCHS, WORKERS, alone, data, descent, gradients, model

from shoal.elastic import Samples
from shoal.torch.elastic import State, run

SIZES = [int(size) for size in sys.argv[sys.argv.index("--sizes") + 1].split(",")]


def reached(seen):
    """How many of the numbers have come, in order: instances that leave together may be noticed one
    after the other.
    """
    count = 0
    for size in seen:
        count += count < len(SIZES) and size == SIZES[count]
    return count


def main():
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
        seen=[],
    )

    def train(state):
        world = state.world
        state.seen.append(world.size)
        print(f"{os.environ['SM_CURRENT_HOST']}: rank {world.rank} of {world.size} at step {state.steps}", flush=True)
        while samples.epoch < EPOCHS:
            # A few steps in each world, then it waits for the next one.
            while state.steps >= 4 * len(state.seen) and reached(state.seen) < len(SIZES):
                time.sleep(0.02)
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
            state.commit()

    run(train, state)
    most = max(
        (a - torch.tensor(b).view_as(a)).abs().max().item() for a, b in zip(net.parameters(), alone(), strict=True)
    )
    result = {
        "seen": state.seen,
        "sizes": sorted(set(state.sizes)),
        "once": bool(state.counts.eq(1).all()),
        "most": most,
    }
    print(json.dumps(result), flush=True)
    dist.barrier()


main()
