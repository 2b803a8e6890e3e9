"""Saves state dicts of all ranks: `save`, and `async_save`, which goes on in a thread after the
state has been copied to the CPU.
"""

import io
import os
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import DefaultSavePlanner, SavePlan, SavePlanner, StorageWriter
from torch.distributed.checkpoint.planner import WriteItem, WriteItemType
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.checkpoint.utils import _DistWrapper

from torch.sagemaker.distributed.checkpoint.async_utils import AsyncCallsQueue
from torch.sagemaker.distributed.checkpoint.coordination import ranks_of
from torch.sagemaker.distributed.checkpoint.filesystem import DistributedFileSystemWriter
from torch.sagemaker.distributed.checkpoint.s3_filesystem import refuse_s3

__all__ = [
    "DEFAULT_ASYNC_REQUEST_QUEUE",
    "PyTorchDistSaveShardedStrategy",
    "async_save",
    "maybe_finalize_async_calls",
    "save",
]

#: The queue of calls that name none.
DEFAULT_ASYNC_REQUEST_QUEUE = AsyncCallsQueue()


class PyTorchDistSaveShardedStrategy:
    """The format of torch.distributed.checkpoint, the only one that there is."""

    backend, version = "torch_dist", 1


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: dist.ProcessGroup | None = None,
    coordinator_rank: int = 0,
    wait_error_handling: bool = True,
    force_check_all_plans: bool = True,
    s3_region: str | None = None,
    s3client_config: object | None = None,
) -> None:
    """Saves to the directory `checkpoint_id`; the ranks of the group call it together, and it
    returns when all have written. `coordinator_rank` is a number of the world's.

    `wait_error_handling` and `force_check_all_plans` have no effect: plans are always compared,
    and errors always reach all ranks. Raises `NotImplementedError` for S3, torch's
    `CheckpointException` on all ranks if one cannot plan or write.
    """
    refuse_s3(checkpoint_id, s3_region, s3client_config)
    saving = _Saving(
        state_dict, _writer(storage_writer, checkpoint_id), planner, ranks_of(process_group, coordinator_rank)
    )
    saving.ranks.all_reduce("write", saving.write, saving.finish)


def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: dist.ProcessGroup | None = None,
    coordinator_rank: int = 0,
    queue: AsyncCallsQueue | None = None,
    sharded_strategy: PyTorchDistSaveShardedStrategy | tuple[str, int] | None = None,
    wait_error_handling: bool = True,
    force_check_all_plans: bool = True,
    s3_region: str | None = None,
    s3client_config: object | None = None,
) -> None:
    """Like `save`, and returns when the state has been copied to the CPU: what is written is the
    state at the time of the call. The checkpoint is complete when `maybe_finalize_async_calls`
    of the module, or of `queue`, says so. Raises `ValueError` for another `sharded_strategy`
    than torch's.
    """
    refuse_s3(checkpoint_id, s3_region, s3client_config)
    if isinstance(sharded_strategy, tuple):
        is_torchs = sharded_strategy[0] == PyTorchDistSaveShardedStrategy.backend
    else:
        is_torchs = sharded_strategy is None or isinstance(sharded_strategy, PyTorchDistSaveShardedStrategy)
    if not is_torchs:
        raise ValueError(
            f"async_save: sharded_strategy={sharded_strategy}: there is torch.distributed.checkpoint's alone, ('torch_dist', 1); leave it out"
        )
    saving = _Saving(
        state_dict, _writer(storage_writer, checkpoint_id), planner, ranks_of(process_group, coordinator_rank)
    )
    saving.copy()
    (DEFAULT_ASYNC_REQUEST_QUEUE if queue is None else queue).schedule(saving.ranks, saving.write, saving.finish)


def maybe_finalize_async_calls(blocking: bool = True, process_group: dist.ProcessGroup | None = None) -> list[int]:
    """Completes the asynchronous saves that all ranks have written, or with `blocking` waits for
    all; the ranks that have saved call it alike. Gives the indices of those that were completed.
    Raises torch's `CheckpointException` on all ranks if one could not write.
    """
    return DEFAULT_ASYNC_REQUEST_QUEUE.maybe_finalize_async_calls(blocking, process_group)


def _writer(writer: StorageWriter | None, checkpoint_id: str | os.PathLike | None) -> StorageWriter:
    if writer is None:
        if checkpoint_id is None:
            raise ValueError(
                "there is no place to save to: give checkpoint_id, a directory that all ranks see, or a storage_writer"
            )
        return DistributedFileSystemWriter(checkpoint_id)
    if checkpoint_id is not None:
        writer.reset(checkpoint_id)
    return writer


class _Saving:
    """One save: planned together, written by each rank alone, finished by the coordinator."""

    def __init__(
        self, state_dict: dict[str, Any], writer: StorageWriter, planner: SavePlanner | None, ranks: _DistWrapper
    ) -> None:
        self.ranks = ranks
        self._writer = writer
        self._planner: SavePlanner | _Copied = DefaultSavePlanner() if planner is None else planner
        self._metadata = None
        state_dict = {name: it.state_dict() if isinstance(it, Stateful) else it for name, it in state_dict.items()}

        def local() -> SavePlan:
            self._planner.set_up_planner(state_dict, writer.storage_meta(), ranks.is_coordinator)
            writer.set_up_storage_writer(ranks.is_coordinator)
            return writer.prepare_local_plan(self._planner.create_local_plan())

        def together(plans: list[SavePlan]) -> list[SavePlan]:
            plans, self._metadata = self._planner.create_global_plan(plans)
            return writer.prepare_global_plan(plans)

        self._plan = self._planner.finish_plan(ranks.reduce_scatter("plan", local, together))

    def copy(self) -> None:
        """Copies what this rank is to write: what the script does to its tensors from now on
        does not count.
        """
        self._planner = _Copied(self._planner, self._plan.items)

    def write(self) -> list[Any]:
        """Writes this rank's part."""
        return self._writer.write_data(self._plan, self._planner).wait()

    def finish(self, results: list[Any]) -> None:
        """Makes a checkpoint of what all ranks have written; on the coordinator."""
        self._writer.finish(metadata=self._metadata, results=results)


class _Copied:
    """What a planner would give to be written, as it was."""

    def __init__(self, planner: SavePlanner, items: list[WriteItem]) -> None:
        self._data = {it.index: _copy(planner.resolve_data(it), it) for it in items}

    def resolve_data(self, item: WriteItem) -> torch.Tensor | io.BytesIO:
        """The tensor or the bytes of an item."""
        return self._data[item.index]


def _copy(data: torch.Tensor | io.BytesIO, item: WriteItem) -> torch.Tensor | io.BytesIO:
    if item.type is WriteItemType.BYTE_IO:
        return data
    data = data.detach()
    return data.clone() if data.device.type == "cpu" else data.cpu()
