"""A worker of test_horovod_elastic.py: trains elastically; rank 0 writes a line for each epoch.
Arguments: a directory, and what happens to whom.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch

import horovod.torch as hvd

EPOCHS, BATCHES, SAMPLES = 3, 4, 48
BLOWS = {"kill": signal.SIGKILL, "hang": signal.SIGSTOP}


def main(directory: Path, blow: str) -> None:
    torch.set_num_threads(1)
    hvd.init()
    start_rank, host = int(os.environ["HOROVOD_RANK"]), os.environ["HOROVOD_HOSTNAME"]
    torch.manual_seed(start_rank)
    model = torch.nn.Linear(2, 1)
    inputs = torch.arange(2.0 * SAMPLES).view(SAMPLES, 2) / SAMPLES
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
    )
    sampler = hvd.elastic.ElasticSampler(list(range(SAMPLES)), shuffle=True, seed=3)
    resets = []

    @hvd.elastic.run
    def train(state):
        state.worlds += 1
        while state.epoch < EPOCHS:
            for number, index in enumerate(state.sampler):
                if blow in BLOWS and (state.epoch, start_rank, len(state.read)) == (1, 0, 20):
                    os.kill(os.getpid(), BLOWS[blow])
                optimizer.zero_grad()
                loss = (model(inputs[index]) - inputs[index].sum()).square().sum()
                loss.backward()
                optimizer.step()
                state.read += hvd.allgather(torch.tensor([index]), name="read").tolist()
                state.sampler.record_batch(number, 1)
                if number % 2:
                    state.commit()
            said = {
                "epoch": state.epoch,
                "size": hvd.size(),
                "host": host,
                "start_rank": start_rank,
                "worlds": state.worlds,
            }
            said |= {
                "all": sorted(set(state.read)) == list(range(SAMPLES)),
                "read": len(state.read),
                "resets": len(resets),
                "pid": os.getpid(),
            }
            weights = hvd.allgather(model.weight.detach().view(1, 2), name="weights")
            said["same"] = bool(weights.eq(weights[0]).all())
            if hvd.rank() == 0:
                with (directory / "log").open("a") as log:
                    log.write(json.dumps(said) + "\n")
                step = directory / f"hosts.{state.epoch + 1}"
                if step.exists():
                    step.rename(directory / "hosts")
                    end = time.monotonic() + 30
                    while state._host_messages.empty() and time.monotonic() < end:
                        time.sleep(0.02)
            state.epoch += 1
            state.read = []
            state.sampler.set_epoch(state.epoch)
            state.commit()

    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, worlds=0, read=[])
    state.register_reset_callbacks([lambda: resets.append(hvd.size())])
    train(state)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
