"""Process groups for PyTorch: `import shoal.torch`, then `torch.distributed.init_process_group("shoal")`."""

import torch.distributed as _dist

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
from shoal.torch import hooks
from shoal.torch.backend import create as _create
from shoal.torch.backend import empty
from shoal.torch.backend import of as _of
from shoal.torch.optimizer import DistributedOptimizer

__all__ = [
    "CommError",
    "ConfigError",
    "DeadlineExceeded",
    "Disagreement",
    "DistributedOptimizer",
    "PeerDied",
    "PeerGaveUp",
    "PeerHung",
    "RendezvousError",
    "Revoked",
    "empty",
    "hooks",
    "plan",
]


def plan(group: _dist.ProcessGroup | None = None) -> str:
    """Which algorithm and protocol runs for which operation and size, for people."""
    return _of(group).native.plan()


if not hasattr(_dist.Backend, "SHOAL"):
    _dist.Backend.register_backend("shoal", _create, extended_api=True, devices=["cpu"])
