"""Process groups for PyTorch: `import shoal.torch`, then
`torch.distributed.init_process_group("shoal")`.
"""

from datetime import timedelta as _timedelta

import torch.distributed as _dist

from shoal.backends import register as _register
from shoal.comm import (
    CommError,
    ConfigError,
    DeadlineExceeded,
    Disagreement,
    PeerDied,
    PeerGaveUp,
    PeerHung,
    RendezvousError,
    Revoked,
)
from shoal.torch import elastic, hooks, optim, reform
from shoal.torch.backend import empty
from shoal.torch.backend import of as _of
from shoal.torch.large_batch import LargeBatch, LargeBatchSampler
from shoal.torch.local_training import LocalTraining
from shoal.torch.optimizer import DistributedOptimizer

__all__ = [
    "CommError",
    "ConfigError",
    "DeadlineExceeded",
    "Disagreement",
    "DistributedOptimizer",
    "LargeBatch",
    "LargeBatchSampler",
    "LocalTraining",
    "PeerDied",
    "PeerGaveUp",
    "PeerHung",
    "RendezvousError",
    "Revoked",
    "elastic",
    "empty",
    "failure",
    "hooks",
    "optim",
    "plan",
    "rejoin",
    "shrink",
]


def plan(group: _dist.ProcessGroup | None = None) -> str:
    """Which algorithm and protocol runs for which operation and size, for people."""
    return _of(group).native.plan()


def failure(group: _dist.ProcessGroup | None = None) -> CommError | None:
    """What the group's first operation failed with, if one has: which ranks and which operation.
    torch itself passes an error that reaches it in a future on as a `RuntimeError` with the same
    text, as that of a backward pass of DistributedDataParallel.
    """
    return _of(group).failure


def shrink() -> None:
    """Makes the default process group anew of the ranks that live, after an operation failed:
    all of them call this. Their numbers are new, in the same order
    (`torch.distributed.get_rank()`); all other groups are gone, and so is everything made with
    one: make DistributedDataParallel, optimizers that communicate, states of hooks and
    registered memory anew. Waits at most the group's timeout for the others.
    """
    old = _of(None)
    reform.renew(old.native.shrink(), old.timeout)


def rejoin(patience: _timedelta = _timedelta(minutes=5)) -> None:
    """Like `shrink`, with a replacement for each lost rank, who takes its number: the same
    program with the same environment and SHOAL_COMM_REPLACES=1, which calls
    `init_process_group`. The process that serves the first group's store (rank 0's, unless the
    launcher has one) cannot be replaced. Waits at most `patience` for replacements.
    """
    old = _of(None)
    reform.renew(old.native.rejoin(patience.total_seconds()), old.timeout)


_register()
