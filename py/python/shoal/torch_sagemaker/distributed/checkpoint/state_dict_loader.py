"""Loads what `state_dict_saver` has saved."""

import os
from typing import Any

import torch.distributed as dist
from torch.distributed import checkpoint
from torch.distributed.checkpoint import LoadPlanner, StorageReader

from torch.sagemaker.distributed.checkpoint.coordination import ranks_of
from torch.sagemaker.distributed.checkpoint.filesystem import DistributedFileSystemReader
from torch.sagemaker.distributed.checkpoint.s3_filesystem import refuse_s3

__all__ = ["load"]


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_reader: StorageReader | None = None,
    planner: LoadPlanner | None = None,
    process_group: dist.ProcessGroup | None = None,
    check_keys_matched: bool = True,
    coordinator_rank: int = 0,
    s3_region: str | None = None,
    s3client_config: object | None = None,
) -> None:
    """Fills the tensors of `state_dict` where they lie, and replaces its other values; the ranks
    of the group call it together. `checkpoint_id` is the checkpoint's directory.

    Raises `ValueError` on all ranks if their keys differ (`check_keys_matched`) or no place is
    given, torch's `CheckpointException` if one cannot read.
    """
    refuse_s3(checkpoint_id, s3_region, s3client_config)
    if storage_reader is None:
        if checkpoint_id is None:
            raise ValueError(
                "there is nothing to load from: give checkpoint_id, the checkpoint's directory, or a storage_reader"
            )
        storage_reader = DistributedFileSystemReader(checkpoint_id)
    elif checkpoint_id is not None:
        storage_reader.reset(checkpoint_id)
    ranks = ranks_of(process_group, coordinator_rank)
    if check_keys_matched:
        _compare(ranks.all_gather_object(sorted(state_dict)))
    checkpoint.load(
        state_dict,
        storage_reader=storage_reader,
        planner=planner,
        process_group=process_group,
        no_dist=not ranks.use_dist,
    )


def _compare(keys: list[list[str]]) -> None:
    first = set(keys[0])
    for rank, theirs in enumerate(keys):
        missing, more = sorted(first - set(theirs)), sorted(set(theirs) - first)
        if missing or more:
            raise ValueError(
                f"load: rank {rank} of the group has other keys than its rank 0: without {missing}, with {more} on top; load the same keys on all ranks"
            )
