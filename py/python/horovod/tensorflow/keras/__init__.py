"""Horovod's interface for Keras as TensorFlow has it: an optimizer that steps on all ranks'
gradients, callbacks, collectives on values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

import horovod._keras as _impl
from horovod._keras.partial import PartialDistributedOptimizer
from horovod._keras.values import allgather, allreduce, broadcast, broadcast_global_variables, reducescatter
from horovod.common import world
from horovod.common.world import *  # noqa: F403 (its `__all__`)
from horovod.common.world import Average, ProcessSet, global_process_set
from horovod.tensorflow.keras import callbacks, elastic
from horovod.tensorflow import Compression, init, shutdown
from horovod.tensorflow.functions import allgather_object, broadcast_object, broadcast_variables
from horovod.tensorflow.gradients import check_groups

__all__ = [
    *world.__all__,
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "elastic",
    "init",
    "load_model",
    "reducescatter",
    "shutdown",
]


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | list[list[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """The optimizer, stepping on the gradients of all ranks; a new one of the same configuration
    and class name.

    op: Average or Sum. With `backward_passes_per_step` n, gradients of n passes are added up,
    reduced over the ranks in the n-th, and divided by n if `average_aggregated_gradients`;
    `iterations` counts all passes, as in Horovod (`shoal.keras.LargeBatch` counts steps).
    IndexedSlices with n > 1 need `sparse_as_dense`. Under a `LossScaleOptimizer`, before or after
    wrapping, one pass of any rank that is not finite skips the step on all.
    SHOAL_SIMULATE_INSTANCES in the environment sets the passes where this is 1.
    """
    return _impl.create_distributed_optimizer(
        optimizer=optimizer,
        name=name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=check_groups(num_groups, groups),
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """The model that was saved, its optimizer a `DistributedOptimizer` with the state that it
    had.
    """
    return _impl.load_model(
        tf.keras,
        lambda it: DistributedOptimizer(it, compression=compression),
        filepath,
        custom_optimizers,
        custom_objects,
    )
