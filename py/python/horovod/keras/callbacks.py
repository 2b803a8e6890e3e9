"""Callbacks for distributed training with Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from horovod._keras import callbacks as _impl

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BroadcastGlobalVariablesCallback(_impl.BroadcastGlobalVariablesCallbackImpl, keras.callbacks.Callback):
    """Gives all ranks the root's variables after the first batch, so that they begin alike; `local_variables` stay as they are."""

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__(keras.backend, root_rank, device)
        one = isinstance(local_variables, tf.Variable) or hasattr(local_variables, "assign")
        local = [] if local_variables is None else [local_variables] if one else list(local_variables)
        if not all(isinstance(it, tf.Variable) or hasattr(it, "assign") for it in local):
            raise ValueError("All local variables must be of tf.Variable type.")
        for it in local:
            self.register_local_var(it)


class MetricAverageCallback(_impl.MetricAverageCallbackImpl, keras.callbacks.Callback):
    """Averages an epoch's metrics over all ranks. It comes before callbacks that read metrics (ReduceLROnPlateau, TensorBoard, checkpoints)."""

    def __init__(self, device: str = "") -> None:
        super().__init__(keras.backend, device)


class LearningRateScheduleCallback(_impl.LearningRateScheduleCallbackImpl, keras.callbacks.Callback):
    """Sets the learning rate to `initial_lr * multiplier` from `start_epoch` until before `end_epoch`.

    multiplier: a constant m, which means m ** (epoch - start_epoch); or a function of the epoch, which is a whole number if `staircase` (set per epoch), else
    epoch + batch / steps_per_epoch (set per batch).
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__(keras.backend, initial_lr, multiplier, start_epoch, end_epoch, staircase, momentum_correction, steps_per_epoch)


class LearningRateWarmupCallback(_impl.LearningRateWarmupCallbackImpl, keras.callbacks.Callback):
    """Raises the learning rate from `initial_lr` / size to `initial_lr`, which is the scaled one, batch by batch during `warmup_epochs` (Goyal et al. 2017)."""

    def __init__(
        self, initial_lr: float, warmup_epochs: int = 5, momentum_correction: bool = True, steps_per_epoch: int | None = None, verbose: int = 0
    ) -> None:
        super().__init__(keras.backend, initial_lr, warmup_epochs, momentum_correction, steps_per_epoch, verbose)


BestModelCheckpoint = _impl.checkpoint(keras.callbacks.ModelCheckpoint)
