"""Local aggregation: gradients of several passes are summed on this rank before ranks reduce
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

__all__ = ["Aggregator"]


def _finite(grads: Sequence[Any]) -> Any:
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(it)) for it in grads if it is not None])


class Aggregator:
    """Sums of `passes` passes' gradients. `counter`: passes in the sums; it and the sums are 0
    again after the last one.

    Works eagerly, in a `tf.function`, and in a graph of TensorFlow 1, whose sessions must run
    `local_variables_initializer`.
    """

    def __init__(self, passes: int, sparse_as_dense: bool, average: bool) -> None:
        if passes <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.passes, self.sparse_as_dense, self.average = passes, sparse_as_dense, average
        self.counter: Any = None
        self.bad: Any = None
        self.sums: dict[int, Any] = {}

    def _variable(self, value: Callable[[], Any], dtype: Any) -> Any:
        if tf.executing_eagerly() or tf.inside_function():
            with tf.init_scope():
                return tf.Variable(value(), trainable=False, dtype=dtype)
        of = tf.compat.v1.GraphKeys.LOCAL_VARIABLES
        return tf.compat.v1.Variable(value(), trainable=False, dtype=dtype, use_resource=True, collections=[of])

    def dense(self, grad: Any) -> Any:
        """The gradient as a tensor; `ValueError` for IndexedSlices without `sparse_as_dense`."""
        if not isinstance(grad, tf.IndexedSlices):
            return grad
        if not self.sparse_as_dense:
            raise ValueError(
                "IndexedSlices are not supported when `backward_passes_per_step` > 1 and `sparse_as_dense` is False."
            )
        return tf.convert_to_tensor(grad)

    def prepare(self, grads: Sequence[Any]) -> None:
        """Creates the variables of the sums, unless they exist."""
        if self.counter is None:
            self.counter = self._variable(lambda: 0, tf.int32)
            self.bad = self._variable(lambda: 0.0, tf.float32)
        for i, grad in enumerate(grads):
            if grad is not None and i not in self.sums:
                shape = tf.TensorShape(grad.shape)
                if not shape.is_fully_defined():
                    what = f"gradient {i} has the shape {shape}, which must be known"
                    raise ValueError(f"backward_passes_per_step > 1: {what}; set sparse_as_dense=True if it is sparse")
                self.sums[i] = self._variable(lambda shape=shape, grad=grad: tf.zeros(shape, grad.dtype), grad.dtype)

    def add(self, grads: Sequence[Any]) -> Any:
        """Adds a pass' gradients. True if they were the step's last."""
        for i, grad in enumerate(grads):
            if grad is not None:
                self.sums[i].assign_add(grad)
        # What was once not finite may not look so in the sum of all ranks.
        self.bad.assign_add(tf.where(_finite(grads), 0.0, 1.0))
        self.counter.assign_add(1)
        return tf.equal(self.counter, self.passes)

    def take(self, reduce: Callable[[list[Any]], list[Any]], grads: Sequence[Any]) -> list[Any]:
        """The reduced sums, in the order of `grads`, divided by the passes if so set. Clears the
        sums by assigning zeros, which also removes values that are not finite.
        """
        held = [self.sums[i].read_value() if grad is not None else None for i, grad in enumerate(grads)]
        results = reduce(held)
        divisor = self.passes if self.average else 1
        results = [it if it is None or divisor == 1 else it / tf.cast(divisor, it.dtype) for it in results]
        self.clear()
        return results

    def one_pass(self, grads: Sequence[Any], reduce: Callable[[list[Any]], list[Any]]) -> tuple[Any, list[Any]]:
        """Adds a pass' gradients. Whether they were the step's last, and the reduced gradients,
        or before the last pass the sums so far.
        """
        grads = [self.dense(it) for it in grads]
        self.prepare(grads)
        last = self.add(grads)

        def sums() -> list[Any]:
            return [self.sums[i].read_value() for i, it in enumerate(grads) if it is not None]

        def reduced() -> list[Any]:
            return [it for it in self.take(reduce, grads) if it is not None]

        results = iter(tf.cond(last, reduced, sums))
        return last, [None if it is None else next(results) for it in grads]

    def clear(self) -> None:
        """Clears the sums."""
        self.counter.assign(0)
        self.bad.assign(0.0)
        for it in self.sums.values():
            it.assign(tf.zeros(it.shape, it.dtype))
