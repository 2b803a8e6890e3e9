"""Callbacks for distributed training with Keras."""

from __future__ import annotations

import keras

from horovod._keras import callbacks as _impl

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]

# Arguments and documentation are those of the first base.


class BroadcastGlobalVariablesCallback(_impl.BroadcastGlobalVariablesCallbackImpl, keras.callbacks.Callback):
    pass


class MetricAverageCallback(_impl.MetricAverageCallbackImpl, keras.callbacks.Callback):
    pass


class LearningRateScheduleCallback(_impl.LearningRateScheduleCallbackImpl, keras.callbacks.Callback):
    pass


class LearningRateWarmupCallback(_impl.LearningRateWarmupCallbackImpl, keras.callbacks.Callback):
    pass


BestModelCheckpoint = _impl.checkpoint(keras.callbacks.ModelCheckpoint)
