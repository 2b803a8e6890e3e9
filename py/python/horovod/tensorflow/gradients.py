"""Reduction of a step's gradients over all ranks, for optimizers and tapes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list
from horovod.tensorflow import bridge
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.mpi_ops import (
    Adasum,
    Average,
    Sum,
    check_num_rank_power_of_2,
    gather_many,
    reduce_many,
    size,
    size_op,
)
from horovod.tensorflow.util import plain, reference

__all__ = ["Reducer", "set_size"]


def set_size(process_set: ProcessSet) -> Any:
    """The number of ranks of the set; in elastic training a tensor, since it may change under a
    graph.
    """
    return size_op(process_set.process_set_id) if int(os.environ.get("HOROVOD_ELASTIC", 0)) else process_set.size()


def check_adasum(process_set: ProcessSet) -> None:
    """`NotImplementedError` unless the set is the world, of 2, 4, 8, ... ranks."""
    if process_set is not global_process_set:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    if not check_num_rank_power_of_2(size()):
        raise NotImplementedError("Running Adasum with non-power of 2 ranks is not supported yet.")


def check_sparse(op: int, prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> None:
    """`NotImplementedError` for reductions that IndexedSlices do not have."""
    if op == Adasum:
        raise NotImplementedError(
            "The Adasum reduction does not currently support sparse tensors. As a workaround please pass sparse_as_dense=True to DistributedOptimizer"
        )
    if op not in (Sum, Average):
        raise NotImplementedError("Only Sum and Average ops are supported with tf.IndexedSlices")
    if prescale_factor != 1.0 or postscale_factor != 1.0:
        raise NotImplementedError("Pre/postscale_factor are not supported with tf.IndexedSlices")


def dense(grad: Any) -> Any:
    """IndexedSlices as a tensor."""
    return tf.convert_to_tensor(grad) if isinstance(grad, tf.IndexedSlices) else grad


class Reducer:
    """Reduces the gradients of a step: all dense ones in one submission (or one for each of
    `groups`), sparse ones by gathering indices and values.

    `groups`: None; a number of groups; or lists of variables, each a group. Ranks that are alone in
    their set, or not in it, keep what they have.
    """

    def __init__(
        self,
        name: str,
        compression: Any = Compression.none,
        sparse_as_dense: bool = False,
        op: int = Average,
        gradient_predivide_factor: float = 1.0,
        groups: int | list[list[Any]] | None = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        self.name, self.compression, self.sparse_as_dense, self.op = name, compression, sparse_as_dense, op
        # The engine divides by the number of ranks for Average.
        self.scales = (1.0 / gradient_predivide_factor, gradient_predivide_factor) if op == Average else (1.0, 1.0)
        self.groups, self.process_set, self.scale_local_gradients = groups, process_set, scale_local_gradients
        self.local: set[Any] = set()

    def register_local(self, variable: Any) -> None:
        """Gradients of this variable stay on their rank."""
        self.local.add(reference(variable))

    def __call__(
        self, grads: Sequence[Any], variables: Sequence[Any] | None = None, use_generic_names: bool = False
    ) -> list[Any]:
        """The gradients that all ranks step with; None stays None. Gradients of local variables
        are only divided by the number of ranks, if so wanted.
        """
        grads = list(grads)
        variables = list(variables) if variables is not None else [None] * len(grads)
        is_local = [it is not None and reference(it) in self.local for it in variables]
        if self.sparse_as_dense:
            grads = [dense(it) for it in grads]
        results = [
            self._scaled(grad) if local and grad is not None else None
            for grad, local in zip(grads, is_local, strict=True)
        ]
        shared = [i for i, grad in enumerate(grads) if grad is not None and not is_local[i]]
        sparse = [i for i in shared if isinstance(grads[i], tf.IndexedSlices)]
        base = self._base(use_generic_names)
        for number, group in enumerate(self._grouped([i for i in shared if i not in sparse], variables)):
            reduced = self._dense([grads[i] for i in group], f"{base}/{number}")
            for i, it in zip(group, reduced, strict=True):
                results[i] = it
        if sparse:
            for i, it in zip(sparse, self.gather([grads[i] for i in sparse], f"{base}/sparse"), strict=True):
                results[i] = it
        return results

    def _base(self, generic: bool) -> str:
        base = "grads" if generic else f"{self.name}_Allreduce"
        if generic or tf.executing_eagerly():
            return base
        # Two optimizers in one graph may step at the same time.
        return bridge.name_of("allreduce", [], base)

    def _scaled(self, grad: Any) -> Any:
        if not (self.scale_local_gradients and self.local):
            return grad
        if isinstance(grad, tf.IndexedSlices):
            return tf.IndexedSlices(self._scaled(grad.values), grad.indices, grad.dense_shape)
        return grad / tf.cast(set_size(self.process_set), grad.dtype)

    def _grouped(self, indices: list[int], variables: list[Any]) -> list[list[int]]:
        if not indices:
            return []
        if self.groups is None:
            return [indices]
        if not isinstance(self.groups, list):
            return split_list(indices, self.groups)
        place = {reference(variables[i]): i for i in indices}
        groups = [[place.pop(reference(it)) for it in group if reference(it) in place] for group in self.groups]
        return [it for it in groups if it] + [[i] for i in place.values()]

    def _dense(self, grads: list[Any], base: str) -> list[Any]:
        if self.op == Adasum:
            check_adasum(self.process_set)
        sent, contexts = zip(*[self.compression.compress(tf.convert_to_tensor(it)) for it in grads], strict=True)
        reduced = reduce_many(sent, base, self.op, *self.scales, process_set=self.process_set, alone=True)
        return [self.compression.decompress(it, context) for it, context in zip(reduced, contexts, strict=True)]

    def gather(self, slices: list[Any], base: str) -> list[Any]:
        """IndexedSlices of all ranks, one after the other; values divided by the number of ranks
        for Average.
        """
        check_sparse(self.op)
        values = gather_many([it.values for it in slices], f"{base}.values", self.process_set, alone=True)
        indices = gather_many([it.indices for it in slices], f"{base}.indices", self.process_set, alone=True)
        if self.op == Average and self.process_set.included():
            values = [it / tf.cast(set_size(self.process_set), it.dtype) for it in values]
        return [
            tf.IndexedSlices(v, i, dense_shape=it.dense_shape) for v, i, it in zip(values, indices, slices, strict=True)
        ]


def check_groups(num_groups: int, groups: Any) -> Any:
    """`groups`, or the older `num_groups`; `ValueError` if it is neither a number nor lists of
    variables.
    """
    if num_groups != 0:
        import warnings

        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups` and will be removed in v0.23.0.",
            DeprecationWarning,
            stacklevel=3,
        )
        groups = num_groups if groups is None else groups
    if groups is not None and not (isinstance(groups, list) or groups > 0):
        raise ValueError("groups should be a non-negative integer or a list of list of tf.Variable.")
    return groups


def check_predivide(gradient_predivide_factor: float, op: int) -> None:
    """`ValueError` for a factor with another op than Average."""
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")


def variables_of_layers(local_layers: Any) -> list[Any]:
    """The trainable variables of one layer or several; `ValueError` for anything else."""
    layers = (
        []
        if local_layers is None
        else [local_layers]
        if isinstance(local_layers, tf.keras.layers.Layer)
        else list(local_layers)
    )
    if not all(isinstance(it, tf.keras.layers.Layer) for it in layers):
        raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
    return [plain(it) for layer in layers for it in layer.trainable_weights]


def _make_allreduce_grads_fn(
    name: str,
    device_dense: str,
    device_sparse: str,
    compression: Any,
    sparse_as_dense: bool,
    op: int,
    gradient_predivide_factor: float,
    groups: Any,
    process_set: ProcessSet = global_process_set,
) -> Callable[..., list[Any]]:
    """Horovod's name for a `Reducer`."""
    return Reducer(name, compression, sparse_as_dense, op, gradient_predivide_factor, groups, process_set)
