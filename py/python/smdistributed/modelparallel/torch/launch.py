"""`smp.init`: who this process is, as its launcher says, and the process groups."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

import shoal.torch  # noqa: F401 (the backend)
from shoal.torch.reach import reaches
from smdistributed.modelparallel.torch import config as configuration
from smdistributed.modelparallel.torch import ranks
from smdistributed.modelparallel.torch.exceptions import SMPRuntimeError
from smdistributed.modelparallel.torch.state_mod import state

__all__ = ["init"]

#: Of ranks that a launcher numbers without a meeting place.
PORT = 7777


class Place(NamedTuple):
    """A rank as its launcher numbers it."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def place() -> Place:
    """From torchrun's variables, Open MPI's, a training job's, or alone."""
    env = os.environ
    if "RANK" in env and "WORLD_SIZE" in env:
        rank, size = int(env["RANK"]), int(env["WORLD_SIZE"])
        return Place(
            rank,
            size,
            int(env.get("LOCAL_RANK", rank)),
            int(env.get("LOCAL_WORLD_SIZE", env.get("SM_NUM_GPUS") or 1) or 1),
        )
    if "OMPI_COMM_WORLD_RANK" in env:
        names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
        return Place(*(int(env[f"OMPI_COMM_WORLD_{name}"]) for name in names))
    hosts = json.loads(env.get("SM_HOSTS") or "[]")
    if len(hosts) > 1 and env.get("SM_CURRENT_HOST") in hosts:
        return Place(hosts.index(env["SM_CURRENT_HOST"]), len(hosts), 0, 1)
    return Place(0, 1, 0, 1)


def _meeting() -> dict[str, str]:
    """Where ranks meet, if the launcher has not said so."""
    env = os.environ
    hosts = json.loads(env.get("SM_HOSTS") or "[]")
    # Several mpirun on a machine must not meet each other.
    job = env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_ess_base_jobid")
    port = PORT if job is None else 20_000 + int(hashlib.sha256(job.encode()).hexdigest(), 16) % 10_000
    return {"MASTER_ADDR": sorted(hosts)[0] if len(hosts) > 1 else "127.0.0.1", "MASTER_PORT": str(port)}


def _start(cfg: configuration.Config, at: Place) -> None:
    if dist.is_initialized():
        if dist.get_world_size() != at.size and at.size > 1:
            raise SMPRuntimeError(
                f"torch.distributed has {dist.get_world_size()} ranks and the launcher says {at.size}: let smp.init() start it"
            )
        if not reaches(dist.group.WORLD, torch.device("cpu")):
            problem = f"torch.distributed has backend {dist.get_backend()}, without operations on CPU tensors, which norms and decisions of ranks are"
            raise SMPRuntimeError(f'{problem}: let smp.init() start it, or take "cpu:shoal,cuda:nccl"')
        return
    on_gpus = torch.cuda.is_available()
    if on_gpus and cfg.ddp_dist_backend in ("shoal", "gloo"):
        problem = (
            f"ddp_dist_backend is {cfg.ddp_dist_backend!r}, which has no operations on GPUs, and PyTorch sees GPUs"
        )
        raise SMPRuntimeError(f'{problem}: take "auto", or hide them (CUDA_VISIBLE_DEVICES="") to train on processors')
    backend = "cpu:shoal,cuda:nccl" if on_gpus else "shoal"
    if at.size == 1 and "MASTER_ADDR" not in os.environ:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        return
    for name, value in _meeting().items():
        os.environ.setdefault(name, value)
    dist.init_process_group(backend, rank=at.rank, world_size=at.size)
    if on_gpus:
        _refuse_shared_gpus()


def _refuse_shared_gpus() -> None:
    """NCCL wants a GPU for each rank, and would say so in its own words, at the first operation."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    mine = socket.gethostname(), str(getattr(properties, "uuid", ""))
    all_ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(all_ranks, mine)
    sharing = [rank for rank, other in enumerate(all_ranks) if other == mine and mine[1]]
    if len(sharing) > 1:
        who = ", ".join(str(it) for it in sharing)
        dist.destroy_process_group()
        raise SMPRuntimeError(
            f'ranks {who} share a GPU of {mine[0]}: start one rank for each GPU, or hide them (CUDA_VISIBLE_DEVICES="") to train on processors'
        )


def init(config: dict[str, Any] | None = None) -> None:
    """Reads the configuration (the launcher's `SM_HP_MP_PARAMETERS` wins over `config`), checks it,
    and starts the process groups. Once in a process.

    Raises `SMPConfigError` with the key and the nearest valid values, before any process waits for
    another.
    """
    if state.initialized:
        raise SMPRuntimeError("smp.init() was called already: call it once")
    if config is not None and not isinstance(config, dict):
        raise SMPRuntimeError(f"smp.init({config!r}): give a dict of settings, or nothing")
    cfg = configuration.read(config, configuration.from_environment())
    at = place()
    mesh = cfg.mesh(at.size if not dist.is_initialized() else dist.get_world_size())
    if torch.cuda.is_available():
        torch.cuda.set_device(at.local_rank % torch.cuda.device_count())
    _start(cfg, at)
    state.rank, state.local_rank, state.local_size = dist.get_rank(), at.local_rank, at.local_size
    state.set(cfg, mesh, ranks.Groups(mesh, state.rank))


def forget() -> None:
    """Makes another `init` of this process possible, for tests; the world's process group stays.
    All ranks call this.
    """
    if state.initialized:
        state.groups.close()
    state.__init__()
