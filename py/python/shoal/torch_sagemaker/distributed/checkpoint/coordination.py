"""The coordinator of a group, in the form that torch's checkpoints take."""

import torch.distributed as dist
from torch.distributed.checkpoint.utils import _DistWrapper

__all__ = ["ranks_of"]


def ranks_of(process_group: dist.ProcessGroup | None, coordinator_rank: int) -> _DistWrapper:
    """The group's collectives of objects. `coordinator_rank` is a number of the world's; the
    group's first rank where it is none of its.
    """
    if not dist.is_available() or not dist.is_initialized():
        return _DistWrapper(None, False, 0)
    members = dist.get_process_group_ranks(dist.group.WORLD if process_group is None else process_group)
    place = members.index(coordinator_rank) if coordinator_rank in members else 0
    return _DistWrapper(process_group, True, place)
