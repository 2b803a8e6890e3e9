"""What the ranks of test_torch_sagemaker.py check: checkpoints."""

import copy
import os
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType
from torch.sagemaker.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.sagemaker.distributed.checkpoint.async_utils import AsyncCallsQueue
from torch.sagemaker.distributed.checkpoint.filesystem import DistributedFileSystemReader, DistributedFileSystemWriter
from torch.sagemaker.distributed.checkpoint.state_dict_utils import (
    SMStateDictType,
    init_optim_state,
    sm_state_dict_type,
)
from torch_sagemaker_checks import FSDP, STEPS, begin, llama, refused, trained, whole


def place(rank):
    """A directory of both ranks'."""
    path = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(path)
    return path[0]


def _sharded(model, optimizer):
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        return {
            "model": model.state_dict(),
            "optimizer": FullyShardedDataParallel.optim_state_dict(model, optimizer),
            "step": 5,
        }


def checkpoints(rank, ranks):
    begin(hybrid_shard_degree=2)
    directory = place(rank)
    model = FSDP(tsm.transform(llama()), use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    trained(model, rank, ranks, optimizer)
    at_save = copy.deepcopy(whole(model))
    state_dict_saver.async_save(
        _sharded(model, optimizer), checkpoint_id=f"{directory}/1", process_group=model.process_group
    )
    # The training goes on, with collectives of its own, while files are written.
    trained(model, rank, ranks, optimizer)
    assert any(not torch.equal(it, at_save[name]) for name, it in whole(model).items())
    state_dict_saver.async_save(
        _sharded(model, optimizer),
        storage_writer=DistributedFileSystemWriter(f"{directory}/2"),
        force_check_all_plans=False,
    )
    done = state_dict_saver.maybe_finalize_async_calls(blocking=False)
    done += state_dict_saver.maybe_finalize_async_calls(blocking=True, process_group=model.process_group)
    assert done in ([1, 2], [done[0], done[0] + 1]) and state_dict_saver.maybe_finalize_async_calls() == []
    assert sorted(os.listdir(directory)) == ["1", "2"] and ".metadata" in os.listdir(f"{directory}/1")
    # Into another model, and into its optimizer.
    other = FSDP(tsm.transform(llama(seed=9)), use_orig_params=True)
    others = torch.optim.AdamW(other.parameters(), lr=0.01)
    init_optim_state(others)
    given = _sharded(other, others)
    given["step"] = 0
    state_dict_loader.load(given, checkpoint_id=f"{directory}/1")
    assert given["step"] == 5
    with FullyShardedDataParallel.state_dict_type(other, StateDictType.SHARDED_STATE_DICT):
        other.load_state_dict(given["model"])
        others.load_state_dict(FullyShardedDataParallel.optim_state_dict_to_load(other, others, given["optimizer"]))
    for name, it in whole(other).items():
        assert torch.equal(it, at_save[name]), name
    # From here the two go the same way.
    reader = DistributedFileSystemReader(f"{directory}/2")
    after = trained(other, rank, ranks, others)
    given = _sharded(other, others)
    expected = copy.deepcopy(whole(model))
    state_dict_loader.load(given, storage_reader=reader, process_group=other.process_group)
    with FullyShardedDataParallel.state_dict_type(other, StateDictType.SHARDED_STATE_DICT):
        other.load_state_dict(given["model"])
    for name, it in whole(other).items():
        assert torch.equal(it, expected[name]), name
    assert len(after[0]) == STEPS
    _mistakes(directory, rank)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(directory)


def _mistakes(directory, rank):
    from torch.distributed.checkpoint import CheckpointException

    with refused(ValueError, "other keys", "['of_rank']"):
        state_dict_loader.load({"of_rank": 1} if rank else {}, checkpoint_id=f"{directory}/1")
    blocked = f"{directory}/file"
    if rank == 0:
        open(blocked, "w").close()
    dist.barrier()
    queue = AsyncCallsQueue()
    with refused((CheckpointException, Exception), "file"):
        state_dict_saver.async_save({"x": torch.ones(2)}, checkpoint_id=f"{blocked}/1", queue=queue)
        queue.maybe_finalize_async_calls(blocking=True)


def local_checkpoints(rank, ranks):
    for orig in (False, True):
        begin(hybrid_shard_degree=2)
        directory = place(rank)
        groups = [dist.new_group(it) for it in tsm.state.ranker.get_rep_groups()]
        mine = next(
            it for it, members in zip(groups, tsm.state.ranker.get_rep_groups(), strict=True) if rank in members
        )
        model = FSDP(tsm.transform(llama()), use_orig_params=orig)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        trained(model, rank, ranks, optimizer)

        def local(model, optimizer):
            with sm_state_dict_type(model, SMStateDictType.SM_LOCAL_STATE_DICT):
                return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

        queue = AsyncCallsQueue()
        state_dict_saver.async_save(
            local(model, optimizer),
            checkpoint_id=f"{directory}/{rank}",
            process_group=mine,
            coordinator_rank=rank,
            queue=queue,
        )
        assert queue.maybe_finalize_async_calls(blocking=True) == [1] and queue.get_num_unfinalized_calls() == 0
        other = FSDP(tsm.transform(llama(seed=9)), use_orig_params=orig)
        others = torch.optim.AdamW(other.parameters(), lr=0.01)
        before = whole(other)
        init_optim_state(others)
        for name, it in whole(other).items():
            assert torch.equal(it, before[name])
        given = local(other, others)
        state_dict_loader.load(
            given,
            storage_reader=DistributedFileSystemReader(f"{directory}/{rank}"),
            process_group=mine,
            coordinator_rank=rank,
        )
        others.load_state_dict(given["optimizer"])
        assert trained(other, rank, ranks, others) == trained(model, rank, ranks, optimizer)
        dist.barrier()
        if rank == 0:
            shutil.rmtree(directory)
