"""Optimizers of tf_keras (Keras 2) that step on the gradients of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._keras.keras2 import CallableList
from horovod._keras.optimizer import Reducing, Settings

__all__ = ["Distributed", "Settings", "wrap"]


class Distributed(Reducing):
    """Comes before an optimizer's class among the bases of a class that `wrap` makes, which has
    `_settings`.

    Gradients are reduced where Keras 2 computes them (`minimize`, `compute_gradients`,
    `get_gradients`), or else in `apply_gradients`.
    """

    _HAS_AGGREGATE_GRAD = True

    @classmethod
    def from_config(cls, config: Any, custom_objects: Any = None) -> Any:
        """A distributed optimizer, too."""
        made = super().from_config(config) if custom_objects is None else super().from_config(config, custom_objects)
        made._prepare()
        return made

    @property
    def variables(self) -> CallableList:
        """The optimizer's variables, a list that may be called."""
        listed = super().variables
        return CallableList(listed() if callable(listed) else listed)

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> list[tuple[Any, Any]]:
        """Pairs of gradient and variable, reduced over all ranks; before a step's last pass,
        this rank's sums so far.
        """
        return self._compute_gradients(loss, var_list, None, tape)

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        tape = tf.GradientTape() if tape is None else tape
        base = super()
        if hasattr(base, "_compute_gradients"):
            pairs = base._compute_gradients(loss, var_list, grad_loss, tape=tape)
        else:
            pairs = base.compute_gradients(loss, var_list, tape=tape)
        variables = [it for _, it in pairs]
        return list(zip(self._allreduce([it for it, _ in pairs], variables), variables, strict=True))

    def get_gradients(self, loss: Any, params: Any) -> list[Any]:
        """The gradients of a loss of a graph, reduced over all ranks."""
        return self._allreduce(super().get_gradients(loss, params), params)

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Reduces the gradients over all ranks unless they are, and steps; with several passes
        only in the last of them.
        """
        pairs = list(grads_and_vars)
        last = self._pending.take()
        grads, variables = [it for it, _ in pairs], [it for _, it in pairs]
        if last is None and (self._agg_helper is not None or kwargs.get("experimental_aggregate_gradients", True)):
            grads, last = self._allreduce(grads, variables), self._pending.take()
        reduced = list(zip(grads, variables, strict=True))
        if last is None or last is True:
            return super().apply_gradients(reduced, *args, **kwargs)
        if hasattr(self, "build") and not getattr(self, "_built", False):
            with tf.init_scope():
                self.build(variables)
        if hasattr(self, "_create_all_weights"):
            with tf.init_scope():
                self._create_all_weights(variables)

        def step() -> Any:
            super(Distributed, self).apply_gradients(reduced, *args, **kwargs)
            return tf.constant(True)

        def skip() -> Any:
            if self._settings.count_passes:
                self.iterations.assign_add(1)
            return tf.constant(True)

        tf.cond(last, step, skip)
        return self.iterations


def wrap(optimizer: Any, settings: Settings) -> Any:
    """A distributed optimizer of the same class and configuration. Its class has that class'
    name, so what is saved can be loaded without Horovod.
    """
    if isinstance(optimizer, Distributed):
        raise ValueError("the optimizer is distributed already")
    kind = type(optimizer)
    if hasattr(optimizer, "inner_optimizer"):
        if settings.passes > 1:
            what = "a LossScaleOptimizer of tf_keras with backward_passes_per_step > 1 changes the scale in the middle of a step"
            raise ValueError(
                f"{what}; use Keras 3 (without TF_USE_LEGACY_KERAS), or mixed_bfloat16, which needs no loss scale"
            )
        more = {name: getattr(optimizer, name) for name in ("dynamic", "initial_scale", "dynamic_growth_steps")}
        return kind(wrap(optimizer.inner_optimizer, settings), **more)
    distributed = type(kind.__name__, (Distributed, kind), {"_settings": settings, "__module__": "horovod._keras"})
    return distributed.from_config(optimizer.get_config())
