"""Which samples a pass of a large batch reads: those of the worker that it stands for."""

from __future__ import annotations

import copy
import math
import warnings
import weakref
from collections.abc import Iterator
from itertools import islice

import torch.distributed as dist
from torch.utils.data import Dataset, DistributedSampler, Sampler

from shoal.comm import ConfigError
from shoal.parallel import Accumulation

__all__ = ["LargeBatchSampler"]


#: Those in use.
_samplers: weakref.WeakSet[LargeBatchSampler] = weakref.WeakSet()


def check_samplers(workers: int) -> None:
    """A warning if batches are read as another number of workers would, and none as `workers`."""
    others = {sampler._simulate for sampler in _samplers}
    if others and workers not in others:
        number = ", ".join(map(str, sorted(others)))
        warnings.warn(
            f"LargeBatch(simulate={workers}), but LargeBatchSampler(simulate={number}): give both the same number of workers",
            stacklevel=4,
        )


class LargeBatchSampler(Sampler[list[int]]):
    """Batches of samples for `DataLoader(dataset, batch_sampler=...)`. Rank r of Y reads, in turns,
    what workers r, r + Y, r + 2 Y and so on of X would: batch n of
    `DistributedSampler(dataset, num_replicas=X, rank=worker)`, for each worker before batch n + 1.
    So an epoch is a whole number of steps.

    `batch_size`: of a worker. `shuffle`, `seed` and `drop_last_samples` are DistributedSampler's,
    `drop_last` DataLoader's. Call `set_epoch` before each epoch. `sampler`: a DistributedSampler
    (of a class of your own, too) of which copies are used, for each worker one. `len()` counts
    passes.
    """

    def __init__(
        self,
        dataset: Dataset | None = None,
        batch_size: int = 1,
        simulate: int = 1,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        drop_last_samples: bool = False,
        ranks: int | None = None,
        rank: int | None = None,
        sampler: DistributedSampler | None = None,
    ):
        started = dist.is_available() and dist.is_initialized()
        ranks = (dist.get_world_size() if started else 1) if ranks is None else ranks
        rank = (dist.get_rank() if started else 0) if rank is None else rank
        if batch_size < 1:
            raise ConfigError(f"LargeBatchSampler: batch_size is {batch_size}; give 1 or more")
        if sampler is None:
            if dataset is None:
                raise ConfigError("LargeBatchSampler: give the dataset, or a DistributedSampler of it as sampler=")
            sampler = DistributedSampler(
                dataset, simulate, rank, shuffle=shuffle, seed=seed, drop_last=drop_last_samples
            )
        plan = Accumulation(simulate, ranks)
        self.workers = [plan.at(rank, number).worker for number in range(plan.passes(rank))]
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last
        self._simulate = simulate
        _samplers.add(self)

    def set_epoch(self, epoch: int) -> None:
        """Which order comes next."""
        self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        readers = [iter(self._reader(worker)) for worker in self.workers]
        while True:
            batches = [list(islice(it, self.batch_size)) for it in readers]
            if not batches[0] or (self.drop_last and len(batches[0]) < self.batch_size):
                return
            yield from batches

    def __len__(self) -> int:
        each = self._samples() / self.batch_size
        return len(self.workers) * (math.floor(each) if self.drop_last else math.ceil(each))

    def _samples(self) -> int:
        """Of a worker, as DistributedSampler counts them."""
        samples = len(self.sampler.dataset)
        if self.sampler.drop_last and samples % self._simulate:
            return math.ceil((samples - self._simulate) / self._simulate)
        return math.ceil(samples / self._simulate)

    def _reader(self, worker: int) -> DistributedSampler:
        reader = copy.copy(self.sampler)
        reader.num_replicas, reader.rank, reader.num_samples = self._simulate, worker, self._samples()
        reader.total_size = reader.num_samples * self._simulate
        return reader
