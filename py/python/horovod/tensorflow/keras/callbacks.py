"""Callbacks for distributed training with Keras as TensorFlow has it."""

from __future__ import annotations

import tensorflow as tf

from horovod._keras import callbacks as _impl

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]

# Arguments and documentation are those of the first base.


class BroadcastGlobalVariablesCallback(_impl.BroadcastGlobalVariablesCallbackImpl, tf.keras.callbacks.Callback):
    pass


class MetricAverageCallback(_impl.MetricAverageCallbackImpl, tf.keras.callbacks.Callback):
    pass


class LearningRateScheduleCallback(_impl.LearningRateScheduleCallbackImpl, tf.keras.callbacks.Callback):
    pass


class LearningRateWarmupCallback(_impl.LearningRateWarmupCallbackImpl, tf.keras.callbacks.Callback):
    pass


BestModelCheckpoint = _impl.checkpoint(tf.keras.callbacks.ModelCheckpoint)
