"""Objects between ranks. `send` and `broadcast` return when the message has arrived."""

from __future__ import annotations

import pickle
from typing import Any

import torch
import torch.distributed as dist

from smdistributed.modelparallel.torch import ranks
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.ranks import CommGroup, RankType
from smdistributed.modelparallel.torch.state_mod import state

__all__ = [
    "allgather",
    "barrier",
    "broadcast",
    "dp_barrier",
    "mp_barrier",
    "pp_barrier",
    "rdp_barrier",
    "recv_from",
    "send",
    "tp_barrier",
]

#: Tags of messages with objects, and of their acknowledgements.
SIZE, BODY, THERE = 11, 12, 13


def _send(text: bytes, to: int) -> list[dist.Work]:
    group = state.groups.objects
    body = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return [dist.isend(torch.tensor([len(text)]), to, group, SIZE), dist.isend(body, to, group, BODY)]


def _received(to: int) -> None:
    dist.recv(torch.empty(1, dtype=torch.int64), to, state.groups.objects, THERE)


def send(obj: Any, dest_rank: int, rank_type: RankType = RankType.WORLD_RANK) -> None:
    """Gives an object to another rank, which calls `recv_from`; returns when it has it."""
    to = ranks.global_rank(dest_rank, rank_type)
    if to == state.rank:
        raise SMPValidationError(f"smp.send: {rank_type.name} {dest_rank} is this rank itself")
    for work in _send(pickle.dumps(obj), to):
        work.wait()
    _received(to)


def recv_from(src_rank: int, rank_type: RankType = RankType.WORLD_RANK) -> Any:
    """Takes an object from another rank, which calls `send` or `broadcast`."""
    source, group = ranks.global_rank(src_rank, rank_type), state.groups.objects
    if source == state.rank:
        raise SMPValidationError(f"smp.recv_from: {rank_type.name} {src_rank} is this rank itself")
    size = torch.empty(1, dtype=torch.int64)
    dist.recv(size, source, group, SIZE)
    body = torch.empty(int(size), dtype=torch.uint8)
    dist.recv(body, source, group, BODY)
    dist.send(size, source, group, THERE)
    return pickle.loads(body.numpy().tobytes())


def broadcast(obj: Any, group: CommGroup = CommGroup.WORLD) -> None:
    """Gives an object to all other ranks of a group, which call `recv_from`; returns when they
    have it.
    """
    others = [it for it in ranks.members(ranks.name_of(group)) if it != state.rank]
    text = pickle.dumps(obj)
    works = [work for to in others for work in _send(text, to)]
    for work in works:
        work.wait()
    for to in others:
        _received(to)


def allgather(obj: Any, group: CommGroup = CommGroup.WORLD) -> list[Any]:
    """Every rank's object, in the order of ranks in the group."""
    torchs = state.groups.of[ranks.name_of(group)]
    found: list[Any] = [None] * dist.get_world_size(torchs)
    dist.all_gather_object(found, obj, torchs)
    return found


def barrier(group: CommGroup = CommGroup.WORLD) -> None:
    """No rank of the group goes on before all have come."""
    dist.barrier(state.groups.of[ranks.name_of(group)])


def mp_barrier() -> None:
    """A barrier of the model parallel group."""
    barrier(CommGroup.MP_GROUP)


def dp_barrier() -> None:
    """A barrier of the data parallel group."""
    barrier(CommGroup.DP_GROUP)


def pp_barrier() -> None:
    """A barrier of the pipeline."""
    barrier(CommGroup.PP_GROUP)


def tp_barrier() -> None:
    """A barrier of the tensor parallel group."""
    barrier(CommGroup.TP_GROUP)


def rdp_barrier() -> None:
    """A barrier of the reduced data parallel group."""
    barrier(CommGroup.RDP_GROUP)
