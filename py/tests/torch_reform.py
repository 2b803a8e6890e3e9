"""A rank of test_torch_reform.py: trains; one rank is killed; the others go on, without it or
with a replacement.
"""

import datetime
import json
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_training import model, near, same_everywhere

import shoal.torch

STEPS, KILLED, BATCH = 6, 2, 4


def samples(size):
    torch.manual_seed(3)
    return torch.randn(STEPS, size, BATCH, 20), torch.randn(STEPS, size, BATCH, 5)


def descent(net):
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def alone(sizes):
    """The parameters after training by one process on the samples of as many ranks as there were
    in each step.
    """
    net = model()
    optimizer = descent(net)
    xs, ys = samples(max(sizes))
    for x, y, size in zip(xs, ys, sizes, strict=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x[:size].flatten(0, 1)), y[:size].flatten(0, 1)).backward()
        optimizer.step()
    return [it.detach() for it in net.parameters()]


def train(net, optimizer, step, dies):
    """The rest of the steps; says how far it came, and with what error if not to the end."""
    # Parameters are rank 0's by DistributedDataParallel; these are by this.
    state = [step, optimizer.state_dict()]
    dist.broadcast_object_list(state, 0)
    step = state[0]
    optimizer.load_state_dict(state[1])
    parallel = DistributedDataParallel(net, gradient_as_bucket_view=True, bucket_cap_mb=0.2)
    xs, ys = samples(3)
    while step < STEPS:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(parallel(xs[step, dist.get_rank()]), ys[step, dist.get_rank()])
        if dies and step == KILLED:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            loss.backward()
        except RuntimeError:
            failure = shoal.torch.failure()
            if failure is None:
                raise
            return step, {"kind": type(failure).__name__, "ranks": failure.ranks, "operation": failure.operation}
        optimizer.step()
        step += 1
    return step, None


def main(what: str) -> None:
    torch.set_num_threads(1)
    is_replacement = os.environ.get("SHOAL_COMM_REPLACES") == "1"
    dist.init_process_group("shoal", timeout=datetime.timedelta(seconds=120))
    first_rank, failure = dist.get_rank(), None
    if not is_replacement:
        pair = dist.new_group([0, 1])
        dist.barrier()
    net = model()
    optimizer = descent(net)
    step, failure = train(net, optimizer, 0, dies=first_rank == 1 and not is_replacement)
    if failure is not None:
        assert step == KILLED
        shoal.torch.shrink() if what == "shrink" else shoal.torch.rejoin()
        step, again = train(net, optimizer, step, dies=False)
        assert again is None
    rank, size = dist.get_rank(), dist.get_world_size()
    parameters = [it.detach() for it in net.parameters()]
    same_everywhere(parameters, size)
    near(parameters, alone([3] * STEPS if what == "rejoin" else [3] * KILLED + [2] * (STEPS - KILLED)))
    # Other groups can be made, and other backends' too.
    pair = dist.new_group([size - 1, 0])
    if rank in (0, size - 1):
        one = torch.ones(1000)
        dist.all_reduce(one, group=pair)
        assert one.eq(2).all()
    gloo = dist.new_group(backend="gloo") if not is_replacement and what == "shrink" else None
    if gloo is not None:
        dist.all_reduce(one, group=gloo)
    print(json.dumps({"first": first_rank, "rank": rank, "size": size, "failure": failure}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
