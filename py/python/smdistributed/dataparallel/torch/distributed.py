"""`torch.distributed` under the name and with the calls that it had in versions 1.0 to 1.3 of
SageMaker's library.
"""

import warnings
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as _dist
from torch.distributed import group, new_group

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
from smdistributed.dataparallel import environment as _environment
from smdistributed.dataparallel.exceptions import SMDDPConfigError, SMDDPNotInitializedError

__all__ = [
    "ReduceOp",
    "all_gather",
    "all_reduce",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "get_local_rank",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "is_available",
    "is_initialized",
    "new_group",
    "reduce",
]

warnings.warn(
    'smdistributed.dataparallel.torch.distributed is deprecated: import smdistributed.dataparallel.torch.torch_smddp and use torch.distributed with backend "smddp"',
    DeprecationWarning,
    stacklevel=2,
)


class ReduceOp:
    """Reductions; torch calls AVERAGE `AVG`."""

    SUM = _dist.ReduceOp.SUM
    AVERAGE = AVG = _dist.ReduceOp.AVG
    MIN = _dist.ReduceOp.MIN
    MAX = _dist.ReduceOp.MAX
    PRODUCT = _dist.ReduceOp.PRODUCT


def is_available() -> bool:
    """Whether this process was started as one of a distributed job's."""
    return _dist.is_available() and (_environment.is_distributed() or _dist.is_initialized())


def is_initialized() -> bool:
    """Whether `init_process_group` was called."""
    return _dist.is_initialized()


def init_process_group(*_ignored, timeout: timedelta | None = None, **_also_ignored) -> None:
    """Forms the group of all ranks that the launcher has started. Arguments of torch's function
    are tolerated, and only `timeout` counts. Raises `SMDDPNotInitializedError` if there is a
    group already, `SMDDPConfigError` if no launcher has told the ranks.
    """
    if _dist.is_initialized():
        raise SMDDPNotInitializedError(
            "init_process_group: the process group is there already; call it once, before everything else"
        )
    if not _environment.is_distributed():
        raise SMDDPConfigError(
            "init_process_group: RANK and WORLD_SIZE are not set; start the script as a job with smdistributed.dataparallel, or by torchrun or mpirun"
        )
    _dist.init_process_group("smddp", **({} if timeout is None else {"timeout": timeout}))


def get_rank(group: _dist.ProcessGroup | None = None) -> int:
    """This rank's number."""
    _needs_group("get_rank")
    return _dist.get_rank(group)


def get_world_size(group: _dist.ProcessGroup | None = None) -> int:
    """How many ranks there are."""
    _needs_group("get_world_size")
    return _dist.get_world_size(group)


def get_local_rank() -> int:
    """This rank's number on its instance, from 0."""
    return _environment.local_rank()


def all_reduce(tensor: torch.Tensor, op=ReduceOp.SUM, group: _dist.ProcessGroup | None = None, async_op: bool = False):
    """Reduces in place, to the same bits on all ranks; a handle if it is asynchronous."""
    _needs_group("all_reduce")
    return _dist.all_reduce(tensor, op, group, async_op)


def reduce(
    tensor: torch.Tensor, dst: int = 0, op=ReduceOp.SUM, group: _dist.ProcessGroup | None = None, async_op: bool = False
):
    """Reduces in place on rank `dst`."""
    _needs_group("reduce")
    return _dist.reduce(tensor, dst, op, group, async_op)


def broadcast(tensor: torch.Tensor, src: int = 0, group: _dist.ProcessGroup | None = None, async_op: bool = False):
    """Every rank's tensor becomes that of `src`."""
    _needs_group("broadcast")
    return _dist.broadcast(tensor, src, group, async_op)


def all_gather(
    tensor_list: list[torch.Tensor],
    tensor: torch.Tensor,
    group: _dist.ProcessGroup | None = None,
    async_op: bool = False,
):
    """Fills `tensor_list` with every rank's tensor, in rank order."""
    _needs_group("all_gather")
    return _dist.all_gather(tensor_list, tensor, group, async_op)


def all_to_all_single(
    output_t: torch.Tensor,
    input_t: torch.Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: _dist.ProcessGroup | None = None,
    async_op: bool = False,
):
    """Rank r gets the r-th piece of every rank's input, along dimension 0; pieces are equal
    where sizes are not given.
    """
    _needs_group("all_to_all_single")
    return _dist.all_to_all_single(output_t, input_t, output_split_sizes, input_split_sizes, group, async_op)


def barrier(group: _dist.ProcessGroup | None = None, async_op: bool = False):
    """No rank goes on before all have come."""
    _needs_group("barrier")
    return _dist.barrier(group, async_op)


def _needs_group(what: str) -> None:
    if not _dist.is_initialized():
        raise SMDDPNotInitializedError(f"{what}: there is no process group; call init_process_group() first")
