"""The loop around a training: forms the group anew when ranks are lost, come or go, and calls
the training again.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from shoal.comm import CommError, ConfigError, RendezvousError
from shoal.elastic.roster import FileRoster, Roster
from shoal.elastic.samples import Samples
from shoal.elastic.state import Dismissed, RanksChanged, State, TooFewRanks, no_state
from shoal.elastic.world import World

__all__ = ["Settings", "run"]

S = TypeVar("S", bound=State)
T = TypeVar("T")

#: Seconds between two looks at the roster and the meeting place.
LOOK_S = 0.5
#: How often in a row the group may break while it is formed.
ATTEMPTS = 5


@dataclasses.dataclass(frozen=True)
class Settings:
    """Bounds of the number of ranks, and the source of the list of hosts."""

    #: With fewer ranks the training waits for newcomers. SHOAL_ELASTIC_LEAST
    least: int = 1
    #: No more ranks are taken in. SHOAL_ELASTIC_MOST
    most: int = 1024
    #: How long it waits for the least, in seconds. SHOAL_ELASTIC_PATIENCE
    patience: float = 600.0
    #: This process's host as the roster calls it. SHOAL_ELASTIC_HOST, else SM_CURRENT_HOST, else
    #: the machine's name
    host: str = dataclasses.field(default_factory=socket.gethostname)
    #: The source of the list of hosts. SHOAL_ELASTIC_ROSTER: a file
    roster: Roster | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ConfigError(f"least is {self.least} and most {self.most}: at least 1 rank, and most not below least")

    @classmethod
    def from_env(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """The settings of the environment."""
        given: dict[str, object] = {}
        for field, read in (("least", int), ("most", int), ("patience", float)):
            name = f"SHOAL_ELASTIC_{field.upper()}"
            text = environment.get(name)
            try:
                if text:
                    given[field] = read(text)
            except ValueError:
                raise ConfigError(f"{name} is {text!r}: give a number") from None
        host = environment.get("SHOAL_ELASTIC_HOST") or environment.get("SM_CURRENT_HOST")
        if host:
            given["host"] = host
        if environment.get("SHOAL_ELASTIC_ROSTER"):
            given["roster"] = FileRoster(environment["SHOAL_ELASTIC_ROSTER"])
        return cls(**given)  # type: ignore[arg-type]


def run(
    train: Callable[[S], T],
    state: S,
    world: World | None = None,
    settings: Settings | None = None,
    *,
    is_loss: Callable[[BaseException], bool] | None = None,
) -> T:
    """Calls `train(state)` until it returns, and returns what it returns.

    world: the ranks; those that the environment names if not given. is_loss: tells whether an
    exception of another library means that ranks were lost; a `CommError` does, unless it is a
    mistake of the caller.

    Raises what `train` raises otherwise, `TooFewRanks`, and `Dismissed` (a SystemExit) on ranks
    whose host has left the roster.
    """
    if not isinstance(state, State):
        raise no_state(state)
    settings = _limited(settings or Settings.from_env(), state)
    world = World.join() if world is None else world
    watch = _Watch(world, settings)
    state._world, state._checks = world, watch.check
    try:
        changed = False
        while True:
            try:
                if changed:
                    for callback in state._reset:
                        callback()
                state.sync(world)
                watch.find_hosts()
                return train(state)
            except RanksChanged as change:
                if world.rank in change.leaving:
                    world.leave()
                    raise Dismissed(settings.host) from None
                # Uncommitted work of ranks that agree is kept.
                state.save()
                why = str(change)
            except Exception as error:
                if not (_lost(error) or (is_loss is not None and is_loss(error))):
                    raise
                why = str(error)
            changed = True
            _renew(world, settings, why)
    finally:
        state._world = state._checks = None


def _limited(settings: Settings, state: State) -> Settings:
    """No more ranks than the samples have workers for."""
    workers = [it.workers for it in vars(state).values() if isinstance(it, Samples)]
    most = min([settings.most, *workers])
    if most < settings.least:
        raise ConfigError(
            f"{settings.least} ranks are needed at least (SHOAL_ELASTIC_LEAST), and the samples have {most} workers: raise Samples(workers=..)"
        )
    return dataclasses.replace(settings, most=most)


def _lost(error: BaseException) -> bool:
    return isinstance(error, CommError) and not isinstance(error, (ConfigError, RendezvousError))


def _renew(world: World, settings: Settings, why: str) -> None:
    """Forms the group anew, with the newcomers that wait; more are waited for only while there
    are fewer than `least` ranks.
    """
    before, begun = world.size, time.monotonic()
    end = begun + settings.patience
    patience, failures = 0.0, 0
    while True:
        try:
            world.grow(settings.most if patience == 0 else settings.least, patience)
        except CommError as error:
            # Another loss meanwhile. A rank that the others have given up gets the same error each
            # time.
            failures += 1
            if not _lost(error) or failures == ATTEMPTS:
                raise
            continue
        if world.size >= settings.least:
            break
        patience = end - time.monotonic()
        if patience <= 0:
            raise TooFewRanks(
                f"{world.size} ranks are left, {settings.least} are needed (SHOAL_ELASTIC_LEAST), and no others came in {settings.patience:.0f} s"
            )
    if world.rank == 0:
        took = time.monotonic() - begun
        print(
            f"shoal.elastic: {before} -> {world.size} ranks in {took * 1000:.0f} ms, epoch {world.epoch} ({why})",
            file=sys.stderr,
            flush=True,
        )


class _Watch:
    """Looks at the roster and the meeting place, and tells all ranks the same at the same point
    of the program.
    """

    def __init__(self, world: World, settings: Settings) -> None:
        self._world, self._settings = world, settings
        self._hosts: list[str] = []
        self._next = 0.0
        self._reported = False

    def find_hosts(self) -> None:
        """Finds the ranks' hosts, after each change."""
        if not any(self._world.all_gather(int(self._settings.roster is not None))):
            self._hosts = []
            return
        self._hosts = [self._world.broadcast_object(self._settings.host, root) for root in range(self._world.size)]

    def check(self) -> None:
        """`RanksChanged` if there is a reason. One broadcast of two words while there is none."""
        world = self._world
        found, leaving = 0, []
        if world.rank == 0 and time.monotonic() >= self._next:
            self._next = time.monotonic() + LOOK_S
            leaving = self._leaving()
            found = int(bool(leaving) or (world.size < self._settings.most and self._newcomers_wait()))
        found, count = world.broadcast([found, len(leaving)])
        if not found:
            return
        leaving = world.broadcast(leaving if world.rank == 0 else [0] * count) if count else []
        self._next = 0.0
        raise RanksChanged(leaving)

    def _newcomers_wait(self) -> bool:
        try:
            return self._world.waiting() > 0
        except (RendezvousError, OSError) as error:
            # Training goes on without newcomers.
            if not self._reported:
                self._reported = True
                print(f"shoal.elastic: no newcomers can be taken in: {error}", file=sys.stderr, flush=True)
            return False

    def _leaving(self) -> list[int]:
        """Ranks beyond what the roster gives their hosts, the youngest first."""
        hosts = None if self._settings.roster is None else self._settings.roster.hosts()
        if hosts is None or not self._hosts:
            return []
        room = dict(hosts)
        leaving = []
        for rank, host in enumerate(self._hosts):
            room[host] = room.get(host, 0) - 1
            if room[host] < 0:
                leaving.append(rank)
        if len(leaving) == len(self._hosts):
            # A roster without any rank's host would lose the state: the oldest rank stays until
            # there are others.
            leaving.remove(0)
        return leaving
