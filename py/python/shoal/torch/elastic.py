"""Elastic training in place for `torch.distributed`: ranks leave and come while the others go on,
with their processes.

    state = shoal.torch.elastic.State(model=model, optimizer=optimizer, samples=Samples(len(data), workers=8, batch=16))

    def train(state):
        net = DistributedDataParallel(state.model)       # what depends on the group is made here
        ...

    shoal.torch.elastic.run(train, state)

Each change of the ranks makes the default process group anew; other groups, DistributedDataParallel
and tensors in registered memory belong to the group they were made with. `docs/elastic.md` shows a
whole program.
"""

import os
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from shoal.comm import CommError, ConfigError, Group
from shoal.elastic import Dismissed, RanksChanged, Samples, Settings, State, TooFewRanks, World
from shoal.elastic import run as _run
from shoal.elastic.state import no_state
from shoal.torch import backend as _backend
from shoal.torch import reform as _reform

__all__ = ["Dismissed", "RanksChanged", "Samples", "Settings", "State", "TooFewRanks", "init", "run"]

S = TypeVar("S", bound=State)
T = TypeVar("T")

_TIMEOUT = timedelta(minutes=30)


def init(timeout: timedelta = _TIMEOUT) -> World:
    """Makes the default process group of the ranks that the environment names (RANK, WORLD_SIZE,
    MASTER_ADDR and MASTER_PORT or SHOAL_COMM_DIRECTORY), or, with SHOAL_COMM_JOINS=1, of those
    that take this process in. Instead of `init_process_group`, which wants to know the rank
    beforehand.
    """
    if dist.is_initialized():
        raise ConfigError("shoal.torch.elastic makes the default process group itself: leave init_process_group out")
    seconds = str(timeout.total_seconds())
    settings = {"SHOAL_COMM_DEADLINE": seconds}
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # torchrun serves a store at MASTER_PORT, which outlives every rank.
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timeout)
        place = dist.PrefixStore(f"shoal/elastic/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        group = Group.join(settings, place, f"torchrun's store at {host}:{port}", f"{host}:{port}")
    else:
        group = Group.join(settings)
    world = World(group, pickler=_Pickler)
    _adopt(group, timeout)
    world.renewed.append(lambda renewed: _adopt(renewed, timeout))
    return world


def run(
    train: Callable[[S], T],
    state: S,
    *,
    world: World | None = None,
    settings: Settings | None = None,
    timeout: timedelta = _TIMEOUT,
) -> T:
    """Calls `train(state)` until it returns, and returns what it returns; see `shoal.elastic.run`.

    world: what `init` gave; made here if not given. timeout: of operations.
    """
    if not isinstance(state, State):
        # Before the other ranks are waited for.
        raise no_state(state)
    settings = settings or Settings.from_env()
    return _run(train, state, init(timeout) if world is None else world, settings, is_loss=_is_loss)


def _is_loss(error: BaseException) -> bool:
    """torch passes errors that reach it in a future on as a RuntimeError, as in a backward pass
    of DistributedDataParallel.
    """
    if not isinstance(error, RuntimeError) or not dist.is_initialized():
        return False
    failure = _backend.of(None).failure
    return failure is not None and not isinstance(failure, ConfigError)


def _adopt(group: Group, timeout: timedelta) -> None:
    """Makes this the default process group."""
    try:
        store = _reform.meet(group, timeout)
        if dist.is_initialized():
            dist.destroy_process_group()
        _reform.formed = group
        dist.init_process_group("shoal", store=store, rank=group.rank, world_size=group.size, timeout=timeout)
    except dist.DistError as error:
        # torch's store of rank 0 does not answer: it was lost in between.
        raise CommError(f"the default process group could not be made anew: {error}") from error
    finally:
        _reform.formed = None
    _reform.meeting = store


class _Pickler(pickle.Pickler):
    """Leaves the elements of tensors where they are."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not torch.Tensor or value.layout != torch.strided or value.requires_grad:
            return NotImplemented
        value = value.cpu().contiguous()
        name = str(value.dtype).removeprefix("torch.")
        if value.numel() == 0:
            return _empty, (name, tuple(value.shape))
        return _filled, (pickle.PickleBuffer(value.reshape(-1).view(torch.uint8).numpy()), name, tuple(value.shape))


def _empty(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.empty(shape, dtype=getattr(torch, dtype))


def _filled(memory: Any, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.frombuffer(memory, dtype=getattr(torch, dtype)).view(shape)
