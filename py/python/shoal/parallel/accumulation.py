"""Large batch simulation: few ranks train as many workers would."""

from __future__ import annotations

from typing import Literal, NamedTuple

from shoal import _native
from shoal.parallel.whole import whole

__all__ = ["Accumulation", "Pass"]

#: How gradients are summed: over passes and ranks; over passes, then averaged over ranks
#: (`horovod.torch`); averaged over both.
Reduction = Literal["sum", "average", "average_of_averages"]


class Pass(NamedTuple):
    """One forward and backward pass of a rank."""

    #: The optimizer's step that it belongs to.
    step: int
    #: Its number within that step.
    number: int
    #: Whose samples it computes.
    worker: int
    #: It is the step's last one: gradients are reduced, then the optimizer steps.
    communicates: bool


class Accumulation:
    """`workers` workers on `ranks` ranks; rank r runs workers r, r + ranks, ..., one a pass.

    `uneven=True` allows some ranks a pass more than others, for a world that changed. Raises
    `Invalid` otherwise where the ranks do not divide the workers.
    """

    def __init__(self, workers: int, ranks: int, *, uneven: bool = False) -> None:
        workers, ranks = whole("simulate", workers), whole("ranks", ranks, 1)
        self._native = _native.Accumulation(workers, ranks, uneven)
        self.workers = workers
        self.ranks = ranks

    def passes(self, rank: int = 0) -> int:
        """How many passes the rank runs for each step of the optimizer."""
        return self._native.passes(rank)

    def at(self, rank: int, number: int) -> Pass:
        """The rank's pass of this number, counted from 0 through all steps."""
        return Pass(*self._native.pass_(rank, number))

    def factor(self, reduction: Reduction = "average") -> float:
        """What the reduced gradient is multiplied by to be the mean over all workers."""
        return self._native.factor(reduction)

    def steps_per_epoch(self, samples: int, batch: int, *, drop_last: bool = False) -> int:
        """Steps of the optimizer in an epoch, if every worker reads `batch` samples a step."""
        return self._native.steps_per_epoch(samples, batch, drop_last)
