"""The state of an elastic training: values, and copies of them as of the last commit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from shoal.elastic.world import World

__all__ = ["Dismissed", "RanksChanged", "State", "TooFewRanks"]


class RanksChanged(Exception):
    """Ranks come or go: raised by `State.commit` and `State.check` on all ranks at the same
    place. `run` catches it; programs let it pass.
    """

    def __init__(self, leaving: list[int]):
        super().__init__(f"ranks {leaving} leave" if leaving else "ranks wait to be taken in")
        #: Ranks that leave.
        self.leaving = leaving


class Dismissed(SystemExit):
    """This rank's host has left the roster: the other ranks have its state, and the process ends
    with exit code 0.
    """

    def __init__(self, host: str):
        super().__init__(0)
        self.host = host

    def __str__(self) -> str:
        return f"host {self.host} has left the roster; the others go on without this rank"


class TooFewRanks(RuntimeError):
    """Fewer ranks are left than the training needs, and no others came in time."""


class State:
    """Values that survive a loss of ranks: `State(model=.., optimizer=.., step=0)`, each an
    attribute.

    What has `state_dict` and `load_state_dict` is kept through them (models, optimizers,
    `Samples`), everything else as a deep copy. `commit` keeps copies in memory; a loss brings all
    ranks back to the last commit, and newcomers get it from a rank that has it.
    """

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            if name.startswith("_") or hasattr(type(self), name):
                raise ValueError(f"a State has no place for a value called {name!r}: choose another name")
            setattr(self, name, value)
        self._names = list(values)
        self._reset: list[Callable[[], object]] = []
        self._checks: Callable[[], None] | None = None
        self._world: World | None = None
        #: How often it was saved; -1: never, as in a rank that has just come.
        self._commits = -1
        self._saved: dict[str, Any] = {}
        self._keep()

    @property
    def world(self) -> World:
        """The ranks, inside of `run`."""
        if self._world is None:
            raise RuntimeError("a State has a world only in the function that shoal.elastic.run calls")
        return self._world

    def on_reset(self, *callbacks: Callable[[], object]) -> None:
        """Calls these after each change of the ranks, before the training goes on."""
        self._reset.extend(callbacks)

    def save(self) -> None:
        """Keeps copies of all values. All ranks call it at the same place."""
        self._keep()
        self._commits += 1

    def restore(self) -> None:
        """Goes back to the copies."""
        for name, kept in self._saved.items():
            value = getattr(self, name)
            if _has_state(value):
                value.load_state_dict(copy.deepcopy(kept))
            else:
                setattr(self, name, copy.deepcopy(kept))

    def commit(self) -> None:
        """Keeps copies, then looks whether ranks come or go (`RanksChanged`)."""
        self.save()
        self.check()

    def check(self) -> None:
        """Looks whether ranks come or go, without a copy: if so, `RanksChanged` on all ranks."""
        if self._checks is not None:
            self._checks()

    def _keep(self) -> None:
        self._saved = {name: _kept(getattr(self, name)) for name in self._names}

    def sync(self, world: World) -> int | None:
        """Brings all ranks to the newest commit among them. Returns the rank that had it, or
        None where all had the same.
        """
        commits = world.all_gather(self._commits)
        newest = max(commits)
        if min(commits) == newest >= 0:
            self.restore()
            return None
        root = commits.index(newest)
        self._saved, self._commits = world.broadcast_object((self._saved, max(newest, 0)), root)
        self.restore()
        return root


def _has_state(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def _kept(value: Any) -> Any:
    return copy.deepcopy(value.state_dict() if _has_state(value) else value)


def no_state(given: object) -> TypeError:
    """The error for a state that is none."""
    return TypeError(
        f"run: the state is a {type(given).__name__}; give a State, such as State(model=model, optimizer=optimizer, step=0)"
    )
