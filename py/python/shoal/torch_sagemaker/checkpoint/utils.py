"""Keeps the number of checkpoints small."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist

from torch.sagemaker.logger import get_logger

__all__ = ["SORT_BY_LAST_INT", "limit_num_subdirs"]


def SORT_BY_LAST_INT(path: str | os.PathLike) -> int:  # noqa: N802 (SageMaker's name)
    """The last number in a name, as of `model-120steps`; -1 if it has none."""
    numbers = re.findall(r"\d+", Path(path).name)
    return int(numbers[-1]) if numbers else -1


def limit_num_subdirs(
    directory: str | os.PathLike,
    max_num_subdirs: int,
    sort: Callable[[str], object] = SORT_BY_LAST_INT,
    regex: str | None = None,
    remove_on_rank0_only: bool = True,
) -> list[str]:
    """Removes the first of a directory's sub-directories in the order of `sort(name)` until
    `max_num_subdirs` are left, on rank 0 only if so told; gives their paths. Only names that
    `regex` matches count. -1 keeps all.
    """
    if max_num_subdirs < 0 or (remove_on_rank0_only and dist.is_initialized() and dist.get_rank() != 0):
        return []
    root = Path(directory)
    names = [it.name for it in root.iterdir() if it.is_dir()] if root.is_dir() else []
    names = sorted((it for it in names if regex is None or re.match(regex, it)), key=sort)
    removed = []
    for name in names[: max(len(names) - max_num_subdirs, 0)]:
        get_logger().info("removes the checkpoint %s: %d are kept", root / name, max_num_subdirs)
        shutil.rmtree(root / name, ignore_errors=True)
        removed.append(str(root / name))
    return removed
