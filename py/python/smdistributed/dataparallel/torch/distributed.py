"""`torch.distributed` under the name that it had in version 1 of SageMaker's library."""

import os
from datetime import timedelta

import torch.distributed as _dist
from torch.distributed import (
    ReduceOp,
    all_gather,
    all_reduce,
    all_to_all_single,
    barrier,
    broadcast,
    get_rank,
    get_world_size,
    is_available,
    is_initialized,
    new_group,
    reduce,
)

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401

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
    "init_process_group",
    "is_available",
    "is_initialized",
    "new_group",
    "reduce",
]


def init_process_group(backend: str = "smddp", timeout: timedelta | None = None) -> None:
    """Forms the process group of all ranks that the launcher has started."""
    _dist.init_process_group(backend, **({} if timeout is None else {"timeout": timeout}))


def get_local_rank() -> int:
    """This rank's number on its instance, from 0."""
    return int(os.environ["LOCAL_RANK"])
