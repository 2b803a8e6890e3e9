"""Gradients of a Keras model on TensorFlow: its step is a compiled graph, so the graph keeps a copy
of the last gradients in variables, which are read when a step is saved.
"""

import contextlib
import sys


class Gradients:
    """While it watches, the optimizer copies gradients before it applies them."""

    def __init__(self, optimizer):
        self._tensorflow = sys.modules.get("tensorflow")
        if self._tensorflow is None:
            raise NotImplementedError("gradients are saved on TensorFlow only")
        self._optimizer, self._slots = optimizer, {}
        # Keras 3 has `apply`, which its `apply_gradients` calls; Keras 2 has the latter only.
        self._name = "apply" if hasattr(optimizer, "apply") else "apply_gradients"
        original = getattr(optimizer, self._name)

        def apply(gradients, trainable_variables=None, **kwargs):
            gradients = list(gradients)
            given = optimizer._trainable_variables if trainable_variables is None else list(trainable_variables)
            self._keep(zip(gradients, given, strict=False))
            return original(gradients, trainable_variables, **kwargs)

        def apply_gradients(pairs, *args, **kwargs):
            pairs = list(pairs)
            self._keep(pairs)
            return original(pairs, *args, **kwargs)

        setattr(optimizer, self._name, apply if self._name == "apply" else apply_gradients)

    def _keep(self, pairs) -> None:
        """Copies gradients; called where the graph is made."""
        tensorflow = self._tensorflow
        for gradient, variable in pairs:
            if gradient is None:
                continue
            if id(variable) not in self._slots:
                with tensorflow.init_scope():
                    slot = tensorflow.Variable(tensorflow.zeros(variable.shape, variable.dtype), trainable=False)
                self._slots[id(variable)] = (variable, slot)
            slot = self._slots[id(variable)][1]
            slot.assign(tensorflow.cast(tensorflow.convert_to_tensor(gradient), slot.dtype))

    def values(self):
        """Variables and their last gradients."""
        return self._slots.values()

    def stop(self) -> None:
        """The optimizer is as it was."""
        with contextlib.suppress(AttributeError):
            delattr(self._optimizer, self._name)
