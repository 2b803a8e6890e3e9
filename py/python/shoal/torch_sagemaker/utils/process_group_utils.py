"""Process groups."""

import torch.distributed as dist

__all__ = ["get_global_ranks"]


def get_global_ranks(process_group: dist.ProcessGroup | None = None) -> list[int]:
    """The world's numbers of a group's ranks (of all ranks if not given), ascending."""
    group = dist.group.WORLD if process_group is None else process_group
    return sorted(dist.get_process_group_ranks(group))
