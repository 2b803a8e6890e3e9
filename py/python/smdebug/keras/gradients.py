"""Gradients of a Keras model on TensorFlow: its step is a compiled graph, so the graph keeps a copy
of the last gradients in variables, which are read when a step is saved.
"""

import contextlib
import sys


class Gradients:
    """While it watches, the optimizer copies gradients before it applies them."""

    def __init__(self, model):
        self._optimizer, self._slots, self.variables = model.optimizer, [], []
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow is None:
            raise NotImplementedError("gradients are saved on TensorFlow only")
        self.variables = list(model.trainable_variables)
        for variable in self.variables:
            zeros = tensorflow.zeros(variable.shape, variable.dtype)
            self._slots.append(tensorflow.Variable(zeros, trainable=False))
        # Keras 3 calls `apply`, Keras 2 has no such method.
        self._name = "apply" if hasattr(self._optimizer, "apply") else "apply_gradients"
        apply, at = getattr(self._optimizer, self._name), {id(one): slot for one, slot in zip(self.variables, self._slots)}

        def apply_gradients(pairs, *args, **kwargs):
            pairs = list(pairs)
            for gradient, variable in pairs:
                self._keep(tensorflow, at.get(id(variable)), gradient)
            return apply(pairs, *args, **kwargs)

        def apply_all(gradients, trainable_variables=None, **kwargs):
            gradients = list(gradients)
            given = self.variables if trainable_variables is None else list(trainable_variables)
            for gradient, variable in zip(gradients, given):
                self._keep(tensorflow, at.get(id(variable)), gradient)
            return apply(gradients, trainable_variables, **kwargs)

        setattr(self._optimizer, self._name, apply_all if self._name == "apply" else apply_gradients)

    @staticmethod
    def _keep(tensorflow, slot, gradient) -> None:
        if slot is not None and gradient is not None:
            slot.assign(tensorflow.cast(tensorflow.convert_to_tensor(gradient), slot.dtype))

    def values(self):
        """Variables and their last gradients."""
        return zip(self.variables, self._slots)

    def stop(self) -> None:
        """The optimizer is as it was."""
        with contextlib.suppress(AttributeError):
            delattr(self._optimizer, self._name)
