"""A sampler whose epoch goes on after a change of the workers."""

import random
from collections.abc import Iterator

import torch.utils.data

from horovod.torch.mpi_ops import rank, size


class ElasticSampler(torch.utils.data.Sampler):
    """Deals the samples of an epoch to the workers, and after a change of them those that are left.

    It belongs into a `TorchState`. Call `record_batch` after each batch and `set_epoch` at the end
    of an epoch, not at its beginning, which would read again what a part of the epoch has read.
    Samples are dealt again from the beginning where they do not fill the last round.

    dataset: anything with a length that stays. shuffle: another order each epoch. seed: of the
    orders, the same on all workers.
    """

    def __init__(self, dataset, shuffle: bool = True, seed: int = 0):
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        #: How many samples of this epoch all workers together have processed.
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, of which nothing is processed."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Every worker has processed a batch of this size."""
        self.processed_num += batch_size * self.num_replicas

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Goes to a place; deals what is left to the workers of now."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def state_dict(self) -> dict[str, int]:
        """The place."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def reset(self) -> None:
        """Deals what is left of the epoch to the workers of now."""
        self.num_replicas, self.rank = size(), rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        left = self.remaining_indices
        # Fewer may be left than workers: then they are repeated more than once.
        self.indices = [left[place % len(left)] for place in range(self.rank, self.total_size, self.num_replicas)]
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
