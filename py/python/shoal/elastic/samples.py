"""Which samples a rank reads in a step, whatever the number of ranks: the global batch stays,
the passes change.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from shoal.parallel import Accumulation, Cursor, Invalid

__all__ = ["Part", "Samples"]


class Part(NamedTuple):
    """One forward and backward pass of this rank."""

    #: The samples; may be empty in the last step of an epoch.
    indices: list[int]
    #: It is the step's last one: gradients are reduced after it.
    communicates: bool


class Samples:
    """`count` samples read by `workers` workers with `batch` each in a step: the global batch is
    `workers * batch`, however many ranks run the workers.

    It is a part of a `State`: a commit keeps the position, a restore goes back to it. Ranks come
    and go between any two steps: no sample is lost and none is read twice. `workers` is also the
    largest number of ranks. `tail`: see `shoal.parallel.Cursor`.
    """

    def __init__(
        self,
        count: int,
        *,
        workers: int,
        batch: int,
        seed: int = 0,
        shuffle: bool = True,
        tail: Literal["short", "drop", "pad"] = "short",
    ) -> None:
        self.count, self.workers, self.batch = count, workers, batch
        self._options: dict[str, Any] = {"seed": seed, "shuffle": shuffle, "tail": tail}
        self._cursor = Cursor(count, **self._options)
        # Refuses an invalid batch or number of workers.
        self._cursor.steps_left(workers, batch)

    @property
    def epoch(self) -> int:
        """The epoch of the next step, from 0."""
        return self._cursor.position[0]

    @property
    def read(self) -> int:
        """How many samples of this epoch are read."""
        return self._cursor.position[1]

    def steps_left(self) -> int:
        """How many steps this epoch still has."""
        return self._cursor.steps_left(self.workers, self.batch)

    def parts(self, rank: int, size: int) -> list[Part]:
        """The parts that this rank of so many reads in the next step, one for each pass. Raises
        `Invalid` for more ranks than workers.
        """
        if size > self.workers:
            what = f"{size} ranks for {self.workers} workers"
            error = Invalid(
                f"workers: {what}; make Samples with workers={size} or more, or allow fewer ranks (SHOAL_ELASTIC_MOST={self.workers})"
            )
            error.field, error.nearest = "workers", [size]
            raise error
        plan = Accumulation(self.workers, size, uneven=True)
        passes = plan.passes(rank)
        workers = [plan.at(rank, number).worker for number in range(passes)]
        return [
            Part(self._cursor.batch(self.workers, self.batch, worker), number + 1 == passes)
            for number, worker in enumerate(workers)
        ]

    def total(self) -> int:
        """Number of samples that all ranks together read in the next step: a sum of losses is
        divided by it for their mean.
        """
        if self._options["tail"] == "short":
            return min(self.workers * self.batch, self.count - self.read)
        return self.workers * self.batch

    def finish(self) -> bool:
        """All ranks have finished the step. Returns whether an epoch ended."""
        return self._cursor.finish(self.workers, self.batch)

    def state_dict(self) -> dict[str, int]:
        """The position."""
        epoch, read = self._cursor.position
        return {"epoch": epoch, "read": read}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes to a position."""
        self._cursor = Cursor(self.count, position=(state["epoch"], state["read"]), **self._options)
