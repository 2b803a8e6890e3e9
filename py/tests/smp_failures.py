"""What the ranks of test_smp.py check: failures that every rank of a pipeline hears of."""

import os

import torch
from smp_calls import raises
from smp_training import init, train_step
from torch import nn

import smdistributed.modelparallel.torch as smp
from shoal.comm import CommError
from smdistributed.modelparallel.torch.exceptions import RemoteError, SMPRuntimeError


class Breaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(12, 3)

    def forward(self, x):
        raise ZeroDivisionError("on purpose")


@smp.step
def twice(model, x):
    output = model(x)
    model.backward(output.sum())
    model.backward(output.mean())


def failures(rank, size):
    """A second backward pass from the same outputs, and a module that raises on one stage: every
    rank hears of it, and none hangs.
    """
    init(partitions=2, auto_partition=False, default_partition=0)
    net = nn.Sequential(nn.Linear(12, 12), nn.Linear(12, 3))
    smp.set_partition(net[1], 1)
    model = smp.DistributedModel(net)
    with raises((RemoteError, SMPRuntimeError), match="add the losses and call it once"):
        twice(model, torch.randn(4, 12))
    init(partitions=2, microbatches=2, auto_partition=False, default_partition=0)
    net = nn.Sequential(nn.Linear(12, 12), Breaks())
    smp.set_partition(net[1], 1)
    model = smp.DistributedModel(net)
    with raises(ZeroDivisionError if rank == 1 else RemoteError, match="on purpose"):
        train_step(model, torch.randn(4, 12), torch.randint(0, 3, (4,)))
    with raises(SMPRuntimeError, match="failed before"):
        train_step(model, torch.randn(4, 12), torch.randint(0, 3, (4,)))


class Leaves(nn.Linear):
    def forward(self, x):
        os._exit(3)


def gone(rank, size):
    """A rank that is gone in a step: the other is told which one."""
    init(partitions=2, microbatches=2, auto_partition=False, default_partition=0)
    net = nn.Sequential(nn.Linear(12, 12), Leaves(12, 3))
    smp.set_partition(net[1], 1)
    model = smp.DistributedModel(net)
    with raises(CommError, match="rank 1 died"):
        train_step(model, torch.randn(4, 12), torch.randint(0, 3, (4,)))
