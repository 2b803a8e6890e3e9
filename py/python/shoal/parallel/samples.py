"""Which samples are read in which order."""

from __future__ import annotations

import json
from typing import Literal

from shoal import _native

__all__ = ["Cursor"]


class Cursor:
    """A place in the order of `samples` samples; readers are the workers of `Accumulation`, each
    with a batch.

        cursor = Cursor(len(dataset), seed=7)
        mine = cursor.batch(workers, batch, worker)       # what this worker reads in the next step
        cursor.finish(workers, batch)                     # everybody has finished the step

    Workers and batch may differ from step to step: nothing is lost, nothing is read twice.
    `position` is all that a checkpoint must keep. `tail`: what an epoch's end that fills no step
    is: a `"short"` step, none (`"drop"`), or one that is filled from the beginning (`"pad"`, as
    `DistributedSampler`).
    """

    def __init__(
        self,
        samples: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        tail: Literal["short", "drop", "pad"] = "short",
        position: tuple[int, int] = (0, 0),
    ) -> None:
        options = {"samples": samples, "seed": seed, "shuffle": shuffle, "tail": tail}
        self._native = _native.Cursor(json.dumps(options), *position)

    @property
    def position(self) -> tuple[int, int]:
        """The epoch, and how many of its samples are read."""
        return self._native.position()

    def steps_left(self, workers: int, batch: int) -> int:
        """How many steps these readers have left in the epoch."""
        return self._native.steps_left(workers, batch)

    def batch(self, workers: int, batch: int, worker: int) -> list[int]:
        """The samples that a worker reads in the next step."""
        return self._native.batch(workers, batch, worker)

    def positions(self, workers: int, batch: int, worker: int) -> list[int]:
        """The same as places in the epoch's order, for an order that comes from elsewhere."""
        return self._native.positions(workers, batch, worker)

    def finish(self, workers: int, batch: int) -> bool:
        """Moves behind the step. Returns whether an epoch ended."""
        return self._native.finish(workers, batch)
