"""The schedule of `shoal.parallel` as a priority of each action."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.distributed as dist

from shoal.parallel import schedule

__all__ = ["BACKWARD", "FORWARD", "Order", "Turns"]

FORWARD, BACKWARD = "forward", "backward"


@lru_cache(maxsize=64)
def _turns(kind: str, stages: int, stage: int, microbatches: int, active: int) -> dict[tuple[int, str], int]:
    made = schedule(
        "gpipe" if kind == "simple" else "dynamic", stages, microbatches, active=None if kind == "simple" else active
    )
    return {(it.micro, it.work): at for at, it in enumerate(made.ranks[stage])}


class Order:
    """Priorities of one rank's actions: their indices in its list of the schedule, so that of
    all that can run, the first in the list does.
    """

    def __init__(self, kind: str, stages: int, stage: int, microbatches: int, active: int) -> None:
        self.simple = kind == "simple"
        self.microbatches = microbatches
        self._turns = _turns("simple" if self.simple else "interleaved", stages, stage, microbatches, active)

    def turn(self, micro: int, work: str, key: tuple[int, ...] = ()) -> tuple[int, ...]:
        """The priority; lower is sooner. `key` decides among requests of one microbatch."""
        return (self._turns[micro, work], *key)


class Turns:
    """Keeps tasks in the same order on the ranks of a tensor parallel group, whose modules wait
    for each other: the first rank decides which is next.
    """

    END = (-1, 0, 0, 0, 0)

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self._group = group
        self._wanted: tuple[int, ...] | None = None
        #: Whether another rank decides.
        self.follows = group is not None and dist.get_rank(group) != 0

    def next(self) -> tuple[int, ...]:
        """The name of the task that is next."""
        if self._wanted is None:
            told = torch.empty(5, dtype=torch.int64)
            dist.broadcast(told, group=self._group, group_src=0)
            self._wanted = tuple(told.tolist())
        return self._wanted

    def took(self, name: tuple[int, ...]) -> None:
        """A task gets the baton."""
        if self.follows:
            self._wanted = None
        elif self._group is not None:
            dist.broadcast(torch.tensor(name), group=self._group, group_src=0)

    def end(self) -> None:
        """No task is left; all ranks of the group call this."""
        if self.follows:
            if self.next() != self.END:
                raise RuntimeError(
                    f"tensor parallel ranks differ: task {self._wanted} is next on the first rank, and here is none left"
                )
            self._wanted = None
        elif self._group is not None:
            dist.broadcast(torch.tensor(self.END), group=self._group, group_src=0)
