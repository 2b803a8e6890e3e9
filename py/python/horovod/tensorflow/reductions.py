"""`allreduce` and `reducescatter` as users call them: with compression, sparse tensors and the
older arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradients import check_adasum, check_sparse, set_size
from horovod.tensorflow.mpi_ops import (
    Adasum,
    Average,
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    allgather,
    grouped_allgather,
    handle_average_backwards_compatibility,
)

__all__ = ["allreduce", "grouped_allreduce", "grouped_reducescatter", "reducescatter"]


def _slices(values: Any, indices: Any, of: tf.IndexedSlices, op: int, process_set: ProcessSet) -> tf.IndexedSlices:
    if op == Average:
        values = values / tf.cast(set_size(process_set), values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=of.dense_shape)


def _part(name: str | None, part: str) -> str | None:
    return None if name is None else f"{name}.{part}"


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """The reduction of a tensor, a variable or IndexedSlices over all ranks of the set (Average
    unless `op` says otherwise), which have the same shape.

    IndexedSlices are gathered: Sum and Average only, without scales. Scales multiply before and
    after the reduction. `average` is the older form of `op`. Raises
    `tf.errors.FailedPreconditionError` where ranks differ in shape, type, op or scales (in a graph
    `tf.errors.UnknownError` with that text).
    """
    op = handle_average_backwards_compatibility(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        check_sparse(op, prescale_factor, postscale_factor)
        more = {"process_set": process_set, "ignore_name_scope": ignore_name_scope}
        values = allgather(tensor.values, _part(name, "values"), **more)
        indices = allgather(tensor.indices, _part(name, "indices"), **more)
        return _slices(values, indices, tensor, op, process_set)
    if op == Adasum:
        check_adasum(process_set)
    sent, context = compression.compress(tf.convert_to_tensor(tensor))
    reduced = _allreduce(sent, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set)
    return compression.decompress(reduced, context)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> Any:
    """As `allreduce` for each of some tensors, all at once or none."""
    if not tensors:
        return tensors
    op = handle_average_backwards_compatibility(op, average)
    results: list[Any] = [None] * len(tensors)
    sparse = [i for i, it in enumerate(tensors) if isinstance(it, tf.IndexedSlices)]
    whole = [i for i in range(len(tensors)) if i not in sparse]
    if sparse:
        check_sparse(op, prescale_factor, postscale_factor)
        more = {"process_set": process_set, "ignore_name_scope": ignore_name_scope}
        values = grouped_allgather([tensors[i].values for i in sparse], _part(name, "values"), **more)
        indices = grouped_allgather([tensors[i].indices for i in sparse], _part(name, "indices"), **more)
        for i, v, at in zip(sparse, values, indices, strict=True):
            results[i] = _slices(v, at, tensors[i], op, process_set)
    if whole:
        if op == Adasum:
            check_adasum(process_set)
        sent, contexts = zip(*[compression.compress(tf.convert_to_tensor(tensors[i])) for i in whole], strict=True)
        reduced = _grouped_allreduce(sent, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set)
        for i, it, context in zip(whole, reduced, contexts, strict=True):
            results[i] = compression.decompress(it, context)
    return results


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """This rank's rows of the reduction (Average or Sum); the first (rows mod ranks) ranks have
    one more.
    """
    sent, context = compression.compress(tf.convert_to_tensor(tensor))
    return compression.decompress(
        _reducescatter(sent, name, op, ignore_name_scope, process_set, prescale_factor, postscale_factor), context
    )


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """As `reducescatter` for each of some tensors, all at once or none."""
    if not tensors:
        return tensors
    sent, contexts = zip(*[compression.compress(tf.convert_to_tensor(it)) for it in tensors], strict=True)
    reduced = _grouped_reducescatter(sent, None, op, False, process_set, prescale_factor, postscale_factor)
    return [compression.decompress(it, context) for it, context in zip(reduced, contexts, strict=True)]


def _allreduce_cond(tensor: Any, *args: Any, process_set: ProcessSet = global_process_set, **kwargs: Any) -> Any:
    """`allreduce`, or the tensor itself on a rank that is alone in the set or not in it."""
    alone = not process_set.included() or process_set.size() == 1
    return tensor if alone else allreduce(tensor, *args, process_set=process_set, **kwargs)
