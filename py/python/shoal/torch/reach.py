"""Which tensors the operations of a process group reach, and a way through host memory for those
on GPUs that backend "shoal" alone does not.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

__all__ = ["all_reduce", "broadcast", "reaches"]


def reaches(group: dist.ProcessGroup, device: torch.device) -> bool:
    """Whether the group has a backend for tensors on this kind of device."""
    return any(it.type == device.type for it in group._device_types)


def broadcast(tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Rank 0's values, in place."""
    with _reached(tensor, group) as memory:
        dist.broadcast(memory, group_src=0, group=group)


def all_reduce(tensor: torch.Tensor, op: dist.ReduceOp.RedOpType, group: dist.ProcessGroup) -> None:
    """The reduction over all ranks, in place."""
    with _reached(tensor, group) as memory:
        dist.all_reduce(memory, op, group)


class _reached:  # noqa: N801 (used as a function)
    """The tensor itself where the group reaches it, else a copy in host memory that goes back
    behind the block.
    """

    def __init__(self, tensor: torch.Tensor, group: dist.ProcessGroup):
        # Where the group has no operations in host memory either, torch says so of the tensor
        # itself.
        is_staged = not reaches(group, tensor.device) and reaches(group, torch.device("cpu"))
        self._tensor, self._memory = tensor, tensor.cpu() if is_staged else tensor

    def __enter__(self) -> torch.Tensor:
        return self._memory

    def __exit__(self, kind: type[BaseException] | None, *raised) -> None:
        if kind is None and self._memory is not self._tensor:
            self._tensor.copy_(self._memory)
