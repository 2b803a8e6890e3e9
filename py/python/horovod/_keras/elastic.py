"""Callbacks that keep an elastic state up to date, each without its base class: `horovod.keras`
and `horovod.tensorflow.keras` add the one of their Keras.
"""

from __future__ import annotations

from typing import Any


class CommitStateCallbackImpl:
    """Commits the state every `batches_per_commit` batches and after each epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        """Counts from the same batch on all ranks, new ones included."""
        self.batches_remaining = self.batches_per_commit

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Commits if it is time."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Commits."""
        self.commit()

    def commit(self) -> None:
        """Commits."""
        self.state.commit()


class UpdateBatchStateCallbackImpl:
    """Sets `state.batch` after each batch, 0 after an epoch. An epoch that begins in the middle
    is shortened, where `steps_per_epoch` is given.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.steps_per_epoch: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Forgets the epoch's number of batches."""
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Shortens the epoch by the batches that are done."""
        if self.params.get("steps"):
            if self.steps_per_epoch is None:
                self.steps_per_epoch = self.params["steps"]
            self.params["steps"] = self.steps_per_epoch - self.state.batch

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Records the batch."""
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """The next epoch begins at batch 0."""
        self.state.batch = 0


class UpdateEpochStateCallbackImpl:
    """Sets `state.epoch` after each epoch, counted through all changes of the world."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs: Any = None) -> None:
        """Keeps the first epoch's number, as Keras counts from 0."""
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Records the next epoch."""
        self.state.epoch = self.initial_epoch + epoch + 1
