"""Process groups for PyTorch: `import shoal.torch`, then `torch.distributed.init_process_group("shoal")`."""

import torch as _torch
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


def empty(*shape: int, dtype: _torch.dtype | None = None, group: _dist.ProcessGroup | None = None) -> _torch.Tensor:
    """A tensor in the group's registered memory, where the ranks of a host reduce and gather without a copy; zeros at first. All ranks of the group
    call this in the same order with the same size."""
    dtype = _torch.get_default_dtype() if dtype is None else dtype
    count = _torch.Size(shape).numel()
    memory = _of(group).native.alloc(max(count * dtype.itemsize, 1))
    return _torch.from_dlpack(memory)[: count * dtype.itemsize].view(dtype).view(shape)


def plan(group: _dist.ProcessGroup | None = None) -> str:
    """Which algorithm and protocol runs for which operation and size, for people."""
    return _of(group).native.plan()


if not hasattr(_dist.Backend, "SHOAL"):
    _dist.Backend.register_backend("shoal", _create, extended_api=True, devices=["cpu"])
