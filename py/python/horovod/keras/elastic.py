"""Elastic training with Keras: the state, and callbacks that keep it up to date."""

from __future__ import annotations

from typing import Any

import keras

from horovod._keras import elastic as _impl
from horovod.tensorflow.elastic import TensorFlowKerasState, run

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]


class KerasState(TensorFlowKerasState):
    """A Keras model, its optimizer (that of the model unless given), and further values as attributes, such as `batch` and `epoch`."""

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer=optimizer, backend=keras.backend, **kwargs)


class CommitStateCallback(_impl.CommitStateCallbackImpl, keras.callbacks.Callback):
    """Commits the state every `batches_per_commit` batches and after each epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__(keras.backend, state, batches_per_commit)


class UpdateBatchStateCallback(_impl.UpdateBatchStateCallbackImpl, keras.callbacks.Callback):
    """Sets `state.batch` after each batch, 0 after an epoch. An epoch that begins in the middle is shortened, where `steps_per_epoch` is given."""

    def __init__(self, state: Any) -> None:
        super().__init__(keras.backend, state)


class UpdateEpochStateCallback(_impl.UpdateEpochStateCallbackImpl, keras.callbacks.Callback):
    """Sets `state.epoch` after each epoch."""

    def __init__(self, state: Any) -> None:
        super().__init__(keras.backend, state)
