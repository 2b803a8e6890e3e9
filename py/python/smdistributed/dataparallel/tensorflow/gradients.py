"""Tape, optimizer and hook of SageMaker's library for TensorFlow."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow import BroadcastGlobalVariablesHook
from smdistributed.dataparallel.tensorflow.collectives import ReduceOp, reduction

__all__ = ["BroadcastGlobalVariablesHook", "DistributedGradientTape", "DistributedOptimizer"]


def _check_devices(what: str, device_dense: str, device_sparse: str) -> None:
    if device_dense or device_sparse:
        raise ValueError(f"{what}: device_dense and device_sparse are not supported; leave them out")


def DistributedGradientTape(  # noqa: N802 (the library's name)
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = hvd.Compression.none,
    sparse_as_dense: bool = True,
    op: ReduceOp = ReduceOp.AVERAGE,
) -> tf.GradientTape:
    """The recorded tape, with a `gradient` that is reduced over all ranks."""
    _check_devices("DistributedGradientTape", device_dense, device_sparse)
    return hvd.DistributedGradientTape(
        gradtape, compression=compression, sparse_as_dense=sparse_as_dense, op=reduction(op, "DistributedGradientTape")
    )


def DistributedOptimizer(  # noqa: N802 (the library's name)
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = hvd.Compression.none,
    sparse_as_dense: bool = True,
    op: ReduceOp = ReduceOp.AVERAGE,
    bucket_cap_mb: float = 25,
) -> Any:
    """The optimizer, of Keras or of TensorFlow 1, stepping on the gradients of all ranks. They
    are reduced in one piece, so `bucket_cap_mb` is only checked.
    """
    _check_devices("DistributedOptimizer", device_dense, device_sparse)
    if bucket_cap_mb <= 0 or bucket_cap_mb * 1024 * 1024 % 128:
        raise ValueError(
            f"DistributedOptimizer: bucket_cap_mb is {bucket_cap_mb}; in bytes it must be a multiple of 128 above 0, such as 25"
        )
    of = reduction(op, "DistributedOptimizer")
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return hvd.DistributedOptimizer(
            optimizer, name, use_locking, compression=compression, sparse_as_dense=sparse_as_dense, op=of
        )
    import horovod.tensorflow.keras as hvd_keras

    return hvd_keras.DistributedOptimizer(
        optimizer, name, compression=compression, sparse_as_dense=sparse_as_dense, op=of
    )
