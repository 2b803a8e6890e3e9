"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.tensorflow.mpi_ops import Average, _allreduce, size

__all__ = ["SyncBatchNormalization"]


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """`BatchNormalization` whose mean and variance in training are those of all ranks' batches
    together, which should be equally large.
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        if not kwargs.get("name"):
            kwargs["name"] = "sync_batch_normalization"
        if _TAKES_FUSED:
            kwargs["fused"] = False
        super().__init__(**kwargs)
        # XLA cannot compile what waits for other processes.
        self.supports_jit = False

    def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        mean, variance = super()._moments(inputs, *args, **kwargs)
        if size() == 1:
            return mean, variance
        # Var[X] = E[X^2] - E[X]^2 holds for the means over ranks as well.
        both = _allreduce(tf.stack([mean, variance + tf.square(mean)]), op=Average)
        mean, square = tf.unstack(both)
        return mean, tf.maximum(square - tf.square(mean), 0)


_TAKES_FUSED = "fused" in tf.keras.layers.BatchNormalization.__init__.__code__.co_varnames
