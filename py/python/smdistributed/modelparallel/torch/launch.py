"""`smp.init`: who this process is, as its launcher says, and the process groups."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

import shoal.torch  # noqa: F401 (the backend)
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
        return Place(rank, size, int(env.get("LOCAL_RANK", rank)), int(env.get("LOCAL_WORLD_SIZE", env.get("SM_NUM_GPUS") or 1) or 1))
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
            raise SMPRuntimeError(f"torch.distributed has {dist.get_world_size()} ranks and the launcher says {at.size}: let smp.init() start it")
        return
    backend = "cpu:shoal,cuda:nccl" if torch.cuda.is_available() and cfg.ddp_dist_backend not in ("shoal", "gloo") else "shoal"
    if at.size == 1 and "MASTER_ADDR" not in os.environ:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        return
    for name, value in _meeting().items():
        os.environ.setdefault(name, value)
    dist.init_process_group(backend, rank=at.rank, world_size=at.size)


def init(config: dict[str, Any] | None = None) -> None:
    """Reads the configuration (the launcher's `SM_HP_MP_PARAMETERS` wins over `config`), checks it, and starts the process groups. Once in a process.

    Raises `SMPConfigError` with the key and the nearest valid values, before any process waits for another.
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
    """Makes another `init` of this process possible, for tests; the world's process group stays. All ranks call this."""
    if state.initialized:
        state.groups.close()
    state.__init__()
