"""An optimizer's momentum that can be changed for a batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._keras.keras2 import note, of_keras3

__all__ = ["Momentum"]


class _Adjustable(float):
    """A number for Python, and a variable for graphs: Keras 3 puts the momentum into the graph
    as a constant.
    """

    def __new__(cls, value: float) -> _Adjustable:
        self = super().__new__(cls, value)
        with tf.init_scope():
            self.variable = tf.Variable(value, trainable=False, dtype=tf.float32)
        return self

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        value = self.variable.read_value()
        return value if dtype is None or dtype == value.dtype else tf.cast(value, dtype)

    def __reduce__(self) -> Any:
        return float, (float(self),)

    def __deepcopy__(self, memo: Any) -> float:
        return float(self)


class Momentum:
    """The momentum of a model's optimizer."""

    def __init__(self, variable: Any) -> None:
        self._variable = variable
        self._was: float | None = None

    @staticmethod
    def of(model: Any) -> Momentum | None:
        """Of the model's optimizer; None if it has no momentum."""
        optimizer = getattr(model.optimizer, "inner_optimizer", None) or model.optimizer
        momentum = getattr(optimizer, "momentum", None)
        if not of_keras3(optimizer):
            return None if momentum is None or not hasattr(momentum, "assign") else Momentum(momentum)
        if isinstance(momentum, _Adjustable):
            return Momentum(momentum.variable)
        if not momentum:
            return None
        if not isinstance(optimizer, tf.keras.optimizers.SGD):
            note(
                f"momentum correction: {type(optimizer).__name__} of Keras 3 has a constant momentum, which stays as it is"
            )
            return None
        optimizer.momentum = _Adjustable(momentum)
        # A graph that was traced before has the constant.
        if getattr(model, "train_function", None) is not None:
            model.make_train_function(force=True)
        return Momentum(optimizer.momentum.variable)

    def correct(self, factor: float) -> None:
        """Multiplies the momentum by a factor."""
        if self._was is None:
            self._was = float(self._variable.numpy())
        self._variable.assign(self._was * factor)

    def restore(self) -> None:
        """As before `correct`."""
        if self._was is not None:
            self._variable.assign(self._was)
            self._was = None
