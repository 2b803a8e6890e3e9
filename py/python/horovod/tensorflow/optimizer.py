"""`DistributedOptimizer` for optimizers of TensorFlow 1; those of Keras go on to
`horovod.tensorflow.keras`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common import simulation
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.aggregation import Aggregator
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradients import Reducer, check_groups, check_predivide
from horovod.tensorflow.mpi_ops import Adasum, Average
from horovod.tensorflow.reductions import allreduce

__all__ = ["DistributedOptimizer"]

_LegacyOptimizer = tf.compat.v1.train.Optimizer


class _Wrapper(_LegacyOptimizer):
    """An optimizer around another one."""

    def __init__(self, optimizer: Any, name: str, use_locking: bool) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """That of the optimizer within."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Those of the optimizer within."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """Those of the optimizer within."""
        return self._optimizer.variables(*args, **kwargs)


class _DistributedOptimizer(_Wrapper):
    """Reduces gradients in `compute_gradients`; with several passes, steps in the last of them
    only.
    """

    def __init__(
        self, optimizer: Any, name: str, use_locking: bool, reducer: Reducer, aggregator: Aggregator | None
    ) -> None:
        super().__init__(optimizer, name, use_locking)
        self._reducer, self._agg_helper = reducer, aggregator
        self._last_pass: Any = None
        if aggregator is not None and tf.executing_eagerly():
            raise ValueError(
                "backward_passes_per_step > 1 is not yet supported for tf.compat.v1 optimizers with eager execution; use a Keras optimizer."
            )

    def register_local_var(self, var: Any) -> None:
        """Gradients of this variable stay on their rank."""
        self._reducer.register_local(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """The optimizer's, reduced over all ranks; before a step's last pass, those of this
        pass.
        """
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        grads, variables = [it for it, _ in pairs], [it for _, it in pairs]
        if self._agg_helper is None:
            return list(zip(self._reducer(grads, variables), variables, strict=True))
        aggregator = self._agg_helper
        grads = [aggregator.dense(it) for it in grads]
        aggregator.prepare(grads)
        there = [i for i, it in enumerate(grads) if it is not None]

        # A function keeps the order of what has effects, in a graph of TensorFlow 1 too.
        @tf.function(autograph=False)
        def one_pass(*given: Any) -> tuple[Any, list[Any]]:
            whole: list[Any] = [None] * len(grads)
            for i, it in zip(there, given, strict=True):
                whole[i] = it
            last = aggregator.add(whole)

            def reduced() -> list[Any]:
                results = aggregator.take(lambda sums: self._reducer(sums, variables), whole)
                return [results[i] for i in there]

            return last, tf.cond(last, reduced, lambda: [tf.identity(whole[i]) for i in there])

        self._last_pass, results = one_pass(*[grads[i] for i in there])
        for i, it in zip(there, results, strict=True):
            grads[i] = it
        return list(zip(grads, variables, strict=True))

    def apply_gradients(
        self, grads_and_vars: Sequence[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """The optimizer's; with several passes only in the last, but `global_step` counts all."""
        pairs = list(grads_and_vars)
        if self._agg_helper is None:
            return self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        if self._last_pass is None:
            raise ValueError(
                "apply_gradients with backward_passes_per_step > 1 comes after compute_gradients of the same optimizer, which counts the passes"
            )

        def skip() -> Any:
            return tf.no_op() if global_step is None else global_step.assign_add(1, read_value=False)

        def step() -> Any:
            return self._optimizer.apply_gradients(pairs, global_step=global_step)

        with tf.control_dependencies([it for it, _ in pairs if it is not None]):
            return tf.cond(self._last_pass, step, skip, name=name)


class _DistributedAdasumOptimizer(_Wrapper):
    """Steps on each rank, and combines the steps' deltas by Adasum."""

    def __init__(self, optimizer: Any, name: str, use_locking: bool, compression: Any, passes: int) -> None:
        super().__init__(optimizer, name, use_locking)
        self._compression, self._passes = compression, passes
        self._starts: dict[Any, Any] = {}
        self._count: Any = None

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's, not reduced."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Sequence[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """A step on this rank; in every `backward_passes_per_step`-th call all ranks combine
        their steps since the last such call.
        """
        pairs = [(grad, var) for grad, var in grads_and_vars if grad is not None]
        variables = [var for _, var in pairs]
        self._prepare(variables)
        starts = [self._starts[var.ref()] for var in variables]

        # Where the step begins: it is read before the step.
        def remember() -> Any:
            return tf.group(*[start.assign(var.read_value()) for start, var in zip(starts, variables, strict=True)])

        def combine() -> Any:
            assigned = []
            for i, (start, var) in enumerate(zip(starts, variables, strict=True)):
                begun = start.read_value()
                delta = allreduce(
                    var.read_value() - begun, compression=self._compression, op=Adasum, name=f"{self._name}.delta.{i}"
                )
                assigned.append(var.assign(begun + delta))
            return tf.group(*assigned)

        with tf.control_dependencies([it for it, _ in pairs]):
            first = tf.equal(tf.math.floormod(self._count.read_value(), self._passes), 0)
            remembered = tf.cond(first, remember, tf.no_op)
        with tf.control_dependencies([remembered] if remembered is not None else []):
            stepped = self._optimizer.apply_gradients(pairs, global_step=global_step)
        with tf.control_dependencies([stepped] if stepped is not None else []):
            count = self._count.assign_add(1, read_value=True)
            last = tf.equal(tf.math.floormod(tf.convert_to_tensor(count), self._passes), 0)
            if tf.executing_eagerly():
                return combine() if bool(last) else None
            return tf.cond(last, combine, tf.no_op, name=name)

    def _prepare(self, variables: list[Any]) -> None:
        with tf.init_scope() if tf.executing_eagerly() or tf.inside_function() else tf.name_scope(self._name):
            if self._count is None:
                self._count = tf.compat.v1.Variable(0, trainable=False, dtype=tf.int64, use_resource=True)
            for var in variables:
                if var.ref() not in self._starts:
                    zeros = tf.zeros(var.shape, var.dtype.base_dtype)
                    self._starts[var.ref()] = tf.compat.v1.Variable(zeros, trainable=False, use_resource=True)


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
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
    """The optimizer, stepping on the gradients of all ranks: one of TensorFlow 1
    (`tf.compat.v1.train`) or of Keras.

    With `backward_passes_per_step` n, gradients of n calls are added up before ranks reduce them,
    and divided by n if `average_aggregated_gradients`. For an optimizer of Keras `use_locking`,
    `op`, `groups` and `num_groups` are ignored, as in Horovod: it averages. Adasum is for those of
    TensorFlow 1 only.
    """
    check_predivide(gradient_predivide_factor, op)
    if op == Adasum and average_aggregated_gradients:
        raise ValueError("Adasum does not support average_aggregated_gradients == True")
    groups = check_groups(num_groups, groups)
    if not isinstance(optimizer, _LegacyOptimizer):
        if op == Adasum:
            raise ValueError("op == Adasum is not supported yet with Keras")
        from horovod.tensorflow.keras import DistributedOptimizer as OfKeras

        return OfKeras(
            optimizer,
            name=name,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
    if backward_passes_per_step == 1:
        simulation.refuse("an optimizer of TensorFlow 1", "backward_passes_per_step, or a Keras optimizer")
    if op == Adasum:
        if process_set.process_set_id != 0:
            raise NotImplementedError("Adasum does not support process sets yet")
        return _DistributedAdasumOptimizer(
            optimizer,
            name or f"DistributedDelta{type(optimizer).__name__}",
            use_locking,
            compression,
            backward_passes_per_step,
        )
    name = name or f"Distributed{type(optimizer).__name__}"
    reducer = Reducer(
        name, compression, sparse_as_dense, op, gradient_predivide_factor, groups, process_set, scale_local_gradients
    )
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    several = backward_passes_per_step > 1
    aggregator = (
        Aggregator(backward_passes_per_step, sparse_as_dense, average_aggregated_gradients) if several else None
    )
    return _DistributedOptimizer(optimizer, name, use_locking, reducer, aggregator)
