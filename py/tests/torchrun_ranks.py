"""Elastic training under torchrun: first a plain script, with no call of Shoal's but the backend's
name, then one that is elastic in place.

The first life of rank 1 is killed in a step of the plain one; all start again from the checkpoint.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import shoal.torch
from shoal.elastic import Samples
from shoal.torch.elastic import State, run

STEPS, KILLED = 6, 3


def plain(checkpoint: Path) -> dict:
    """With DistributedDataParallel and a checkpoint of each step."""
    dist.init_process_group("shoal")
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 1)
    first = 0
    if checkpoint.exists():
        kept = torch.load(checkpoint)
        net.load_state_dict(kept["net"])
        first = kept["step"]
    parallel = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    for step in range(first, STEPS):
        if (step, dist.get_rank(), restarts) == (KILLED, 1, 0):
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        parallel(torch.ones(2, 4) * (step + dist.get_rank())).square().mean().backward()
        optimizer.step()
        if dist.get_rank() == 0:
            torch.save({"net": net.state_dict(), "step": step + 1}, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").rename(checkpoint)
    said = {"restarts": restarts, "first": first, "weights": net.weight.detach().flatten().tolist()}
    dist.barrier()
    dist.destroy_process_group()
    return said


def in_place() -> dict:
    """With `shoal.torch.elastic`, whose ranks meet in torchrun's store."""
    samples = Samples(10, workers=2, batch=1)
    state = State(samples=samples, seen=torch.zeros(10, dtype=torch.int64))

    def train(state: State) -> None:
        while samples.epoch == 0:
            read = torch.zeros(10, dtype=torch.int64)
            for part in samples.parts(state.world.rank, state.world.size):
                read[part.indices] += 1
            dist.all_reduce(read)
            state.seen += read
            samples.finish()
            state.commit()

    run(train, state)
    dist.barrier()
    return {"once": bool(state.seen.eq(1).all()), "size": dist.get_world_size()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert shoal.torch is not None
    directory = Path(sys.argv[1])
    for name, said in (("plain", plain(directory / "checkpoint")), ("in_place", in_place())):
        (directory / f"{name}.{os.environ['RANK']}").write_text(json.dumps(said))
