"""A worker of an elastic Horovod job of the platform: in the middle of an epoch it waits until
the job was on 4, 2 and 3 instances.
"""

import json
import os
import time

import torch

import horovod.torch as hvd

EPOCHS, SAMPLES, SIZES = 2, 48, [4, 2, 3]


def reached(seen):
    """How many of the sizes have come, in order."""
    count = 0
    for size in seen:
        count += count < len(SIZES) and size == SIZES[count]
    return count


def main():
    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(1)
    model = torch.nn.Linear(2, 1)
    inputs = torch.arange(2.0 * SAMPLES).view(SAMPLES, 2) / SAMPLES
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
    )
    sampler = hvd.elastic.ElasticSampler(list(range(SAMPLES)), shuffle=True, seed=3)

    @hvd.elastic.run
    def train(state):
        state.seen.append(hvd.size())
        print(
            f"{os.environ['SM_CURRENT_HOST']}: rank {hvd.rank()} of {hvd.size()} with {len(state.read)} read",
            flush=True,
        )
        while state.epoch < EPOCHS:
            here = 0
            for number, index in enumerate(state.sampler):
                # Three batches in each world, then it waits for the next one.
                while here == 3 and reached(state.seen) < len(SIZES):
                    time.sleep(0.05)
                    state.check_host_updates()
                optimizer.zero_grad()
                loss = (model(inputs[index]) - inputs[index].sum()).square().sum()
                loss.backward()
                optimizer.step()
                state.read += hvd.allgather(torch.tensor([index]), name="read").tolist()
                state.sampler.record_batch(number, 1)
                here += 1
                state.commit()
            if hvd.rank() == 0:
                once = sorted(state.read) == list(range(SAMPLES))
                print(
                    json.dumps({"epoch": state.epoch, "seen": state.seen, "once": once, "pid": os.getpid()}), flush=True
                )
            state.epoch += 1
            state.read = []
            state.sampler.set_epoch(state.epoch)
            state.commit()

    train(hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, seen=[], read=[]))


main()
