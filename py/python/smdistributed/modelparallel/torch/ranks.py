"""Ranks and groups: the algebra of `shoal.parallel.Mesh` under SageMaker's names.

A rank has a place along three axes: pipeline (pp), tensor (tp) and the rest of data parallelism
(rdp). dp = tp x rdp, mp = pp x tp.
"""

from __future__ import annotations

from enum import Enum

import torch.distributed as dist

from shoal.parallel import Mesh
from smdistributed.modelparallel.torch.exceptions import SMPRuntimeError, SMPValidationError
from smdistributed.modelparallel.torch.state_mod import state

__all__ = ["CommGroup", "RankType"]


class CommGroup(Enum):
    """Groups of ranks."""

    WORLD = "world"
    MP_GROUP = "mp"
    DP_GROUP = "dp"
    PP_GROUP = "pp"
    TP_GROUP = "tp"
    RDP_GROUP = "rdp"


class RankType(Enum):
    """How a rank is numbered: in the world, or in one of its groups."""

    WORLD_RANK = "world"
    MP_RANK = "mp"
    DP_RANK = "dp"
    PP_RANK = "pp"
    TP_RANK = "tp"
    RDP_RANK = "rdp"


AXES = {"world": ("data", "pipeline", "tensor"), "mp": ("pipeline", "tensor"), "dp": ("data", "tensor")}
AXES |= {"pp": ("pipeline",), "tp": ("tensor",), "rdp": ("data",)}


def members(name: str) -> list[int]:
    """Global ranks of this process's group, ascending."""
    return state.mesh.group(state.rank, *AXES[name])


class Groups:
    """torch's groups of each name, and the library's own. All ranks make them in the same order."""

    def __init__(self, mesh: Mesh, rank: int) -> None:
        made: dict[tuple[int, ...], dist.ProcessGroup] = {tuple(range(mesh.world)): dist.group.WORLD}
        self.of: dict[str, dist.ProcessGroup] = {}
        for name, axes in AXES.items():
            for ranks in mesh.groups(*axes):
                if tuple(ranks) not in made:
                    made[tuple(ranks)] = dist.new_group(ranks)
                if rank in ranks:
                    self.of[name] = made[tuple(ranks)]
        #: Objects between ranks, on the CPU.
        self.objects = dist.new_group(backend="shoal")
        #: Messages of a pipeline, on the CPU; None without a pipeline.
        self.pipeline: dist.ProcessGroup | None = None
        #: The next task, among the tensor parallel ranks of a stage; None without a pipeline or
        #: tensor parallelism.
        self.turns: dist.ProcessGroup | None = None
        if mesh.size("pipeline") > 1 and mesh.size("tensor") > 1:
            for ranks in mesh.groups("tensor"):
                group = dist.new_group(ranks, backend="shoal")
                if rank in ranks:
                    self.turns = group
        if mesh.size("pipeline") > 1:
            for ranks in mesh.groups("pipeline"):
                group = dist.new_group(ranks, backend="shoal")
                if rank in ranks:
                    self.pipeline = group
        own = (*self.of.values(), self.objects, self.turns, self.pipeline)
        self._made = {id(it): it for it in own if it is not None and it is not dist.group.WORLD}

    def close(self) -> None:
        """Leaves all groups but the world's; all ranks call this."""
        dist.barrier()
        for it in self._made.values():
            dist.destroy_process_group(it)


def name_of(kind: CommGroup | RankType) -> str:
    """The short name of a group or of a kind of rank."""
    if not isinstance(kind, (CommGroup, RankType)):
        raise SMPValidationError(f"{kind!r} is no group: use one of smp.CommGroup or smp.RankType, as smp.DP_GROUP")
    return kind.value


def global_rank(number: int, kind: RankType) -> int:
    """The rank in the world of a rank in one of this process's groups."""
    name = name_of(kind)
    ranks = members(name)
    if not 0 <= number < len(ranks):
        raise SMPValidationError(f"there is no rank {number} of {kind.name}: it has ranks 0 to {len(ranks) - 1}")
    return ranks[number]


def is_initialized() -> bool:
    """Whether `smp.init` is done."""
    return state.initialized


def is_tracing() -> bool:
    """Whether the model is being traced."""
    return state.tracing


def rank() -> int:
    """This process's number."""
    return members("world").index(state.rank)


def size() -> int:
    """Number of processes."""
    return state.mesh.world


def local_rank() -> int:
    """This process's number on its instance."""
    state.mesh  # noqa: B018 (raises before init)
    return state.local_rank


def local_size() -> int:
    """Number of processes on this instance."""
    state.mesh  # noqa: B018
    return state.local_size


def _place(name: str):
    def place() -> int:
        return members(name).index(state.rank)

    def count() -> int:
        return state.mesh.size(*AXES[name])

    def listed() -> list[int]:
        return members(name)

    def group() -> dist.ProcessGroup:
        if not state.cfg.ddp:
            raise SMPRuntimeError(f'get_{name}_process_group() needs "ddp": true in the configuration')
        return state.groups.of[name]

    place.__doc__ = f"This process's number in its {name} group."
    count.__doc__ = f"How many ranks a {name} group has."
    listed.__doc__ = f"Global ranks of this process's {name} group."
    group.__doc__ = f"torch's group of this process's {name} ranks; needs ddp."
    for it, title in (
        (place, f"{name}_rank"),
        (count, f"{name}_size"),
        (listed, f"get_{name}_group"),
        (group, f"get_{name}_process_group"),
    ):
        it.__name__ = it.__qualname__ = title
    return place, count, listed, group


mp_rank, mp_size, get_mp_group, get_mp_process_group = _place("mp")
dp_rank, dp_size, get_dp_group, get_dp_process_group = _place("dp")
pp_rank, pp_size, get_pp_group, get_pp_process_group = _place("pp")
tp_rank, tp_size, get_tp_group, get_tp_process_group = _place("tp")
rdp_rank, rdp_size, get_rdp_group, get_rdp_process_group = _place("rdp")
_, _, get_world_group, get_world_process_group = _place("world")
