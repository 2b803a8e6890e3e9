"""Optimizers of Keras 3 that step on the gradients of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from horovod._keras.keras2 import CallableList
from horovod.tensorflow.aggregation import Aggregator
from horovod.tensorflow.gradients import Reducer
from horovod.tensorflow.util import plain

__all__ = ["Distributed", "Reducing", "Settings", "is_distributed", "wrap"]


@dataclass(frozen=True)
class Settings:
    """Arguments of `DistributedOptimizer`."""

    reducer: dict[str, Any]
    passes: int = 1
    average: bool = False
    #: Whether `iterations` counts passes, as Horovod does, or steps.
    count_passes: bool = True
    #: Learning rates are multiplied by it in a step.
    rate_factor: float = 1.0


def is_distributed(optimizer: Any) -> bool:
    """Whether an optimizer is distributed, by itself or within a loss scale."""
    return isinstance(optimizer, Distributed) or isinstance(getattr(optimizer, "inner_optimizer", None), Distributed)


class Pending:
    """What `compute_gradients` has reduced and is to be applied: the graph, or "eager", and
    whether that was the step's last pass.
    """

    def __init__(self) -> None:
        self._computed: tuple[Any, Any] | None = None

    def put(self, last: Any) -> None:
        """Records a call of `compute_gradients` in this graph, and whether it was the step's
        last pass.
        """
        self._computed = (_place(), last)

    def take(self) -> Any:
        """Whether that was the last pass; None if it was not called here."""
        computed, self._computed = self._computed, None
        return computed[1] if computed is not None and computed[0] is _place() else None


def _place() -> Any:
    return "eager" if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


class Reducing:
    """What distributed optimizers of Keras 2 and Keras 3 have in common."""

    _settings: Settings

    def _prepare(self) -> None:
        settings = self._settings
        several = settings.passes > 1
        # Keras 2 makes hyperparameters of attributes that it does not know, and tracks variables.
        self.__dict__["_reducer"] = Reducer(**settings.reducer)
        self.__dict__["_agg_helper"] = (
            Aggregator(settings.passes, settings.reducer["sparse_as_dense"], settings.average) if several else None
        )
        self.__dict__["_pending"] = Pending()

    def register_local_var(self, var: Any) -> None:
        """Gradients of this variable stay on their rank; they are divided by the number of
        ranks, if `scale_local_gradients`.
        """
        self._reducer.register_local(var)

    def _allreduce(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        if self._agg_helper is None:
            self._pending.put(True)
            return self._reducer(grads, variables)
        last, results = self._agg_helper.one_pass(grads, lambda held: self._reducer(held, variables))
        self._pending.put(last)
        return results


class Distributed(Reducing):
    """Comes before an optimizer's class among the bases of a class that `wrap` makes, which has
    `_settings`.

    Gradients are reduced in `apply`, which `apply_gradients` and Keras' own training loop call; or
    in `compute_gradients`, if that is called, as in Keras 2.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._prepare()

    @property
    def variables(self) -> CallableList:
        """The optimizer's variables, a list that may be called."""
        return CallableList(super().variables)

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> list[tuple[Any, Any]]:
        """Pairs of gradient and variable of a loss, or of a function that gives it, reduced over
        all ranks. Before a step's last pass they are this rank's sums so far, which
        `apply_gradients` does not apply.
        """
        variables = list(var_list() if callable(var_list) else var_list)
        if callable(loss):
            with tf.GradientTape() as tape:
                loss = loss()
        elif tape is None:
            raise ValueError(
                "compute_gradients: give the tape that has recorded the loss, or a function that computes the loss"
            )
        grads = tape.gradient(loss, variables)
        return list(zip(self._allreduce(grads, variables), variables, strict=True))

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        if grad_loss is not None:
            raise ValueError("compute_gradients: grad_loss is not supported; multiply the loss instead")
        return self.compute_gradients(loss, var_list, tape)

    def get_gradients(self, loss: Any, params: Any) -> list[Any]:
        """The gradients of a loss of a graph, reduced over all ranks."""
        return self._allreduce(tf.gradients(loss, [plain(it) for it in params]), params)

    def _aggregate_gradients(self, grads_and_vars: Any) -> list[Any]:
        pairs = list(grads_and_vars)
        return self._allreduce([it for it, _ in pairs], [it for _, it in pairs])

    def minimize(self, loss: Any, var_list: Any, tape: Any = None) -> Any:
        """Computes the gradients and applies them."""
        return self.apply_gradients(self.compute_gradients(loss, var_list, tape))

    def apply_gradients(
        self,
        grads_and_vars: Any,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        experimental_aggregate_gradients: bool = True,
        global_step: Any = None,
    ) -> Any:
        """Reduces the gradients over all ranks, unless `compute_gradients` has done so or one of
        the two flags says that they are reduced, and steps.
        """
        pairs = list(grads_and_vars)
        last = self._pending.take()
        grads, variables = [it for it, _ in pairs], [it for _, it in pairs]
        if last is not None:
            self._step_if(last, lambda: self.apply_reduced(grads, variables), variables)
        elif self._agg_helper is None and (skip_gradients_aggregation or not experimental_aggregate_gradients):
            self.apply_reduced(grads, variables)
        else:
            self.apply(grads, variables)
        return self.iterations

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        """Reduces the gradients over all ranks, and steps; with several passes only in the last
        of them.
        """
        variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
        if not grads:
            return
        if self._agg_helper is None:
            self.apply_reduced(self._reducer(grads, variables), variables)
            return
        aggregator = self._agg_helper
        grads = [aggregator.dense(it) for it in grads]
        aggregator.prepare(grads)

        def step() -> None:
            self.apply_reduced(aggregator.take(lambda held: self._reducer(held, variables), grads), variables)

        self._step_if(aggregator.add(grads), step, variables)

    def apply_reduced(self, grads: Sequence[Any], variables: Sequence[Any]) -> None:
        """A step of the optimizer on these gradients."""
        self.__dict__["_is_stepping"] = True
        try:
            super().apply(list(grads), list(variables))
        finally:
            self.__dict__["_is_stepping"] = False

    def _get_current_learning_rate(self) -> Any:
        """Callbacks see the script's own rate; the update and weight decay have the multiplied
        one.
        """
        rate, factor = super()._get_current_learning_rate(), self._settings.rate_factor
        return rate * factor if factor != 1.0 and self.__dict__.get("_is_stepping") else rate

    def _step_if(self, last: Any, step: Any, variables: Sequence[Any]) -> None:
        if last is True:
            step()
            return
        # Variables cannot be made in a branch.
        if not self.built:
            with tf.init_scope():
                self.build(list(variables))
        tf.cond(last, lambda: _done(step()), lambda: _done(self._count()))

    def _count(self) -> None:
        if self._settings.count_passes:
            self.iterations.assign_add(1)

    def apply_scaled(self, scale: Any, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        """Applies gradients of a scaled loss, for a `LossScaleOptimizer` around this optimizer.

        A pass of any rank that is not finite skips the step on all ranks, and halves the scale; it
        changes after the last pass of a step only, so that all gradients of a step have one scale.
        `shoal.parallel.LossScale` states the same rule.
        """
        variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
        if not scale.built:
            with tf.init_scope():
                scale.build(variables)
        aggregator = self._agg_helper
        if aggregator is None:
            bad = tf.where(_finite(grads), 0.0, 1.0)
            self._decide(scale, self._with_flag(grads, variables, bad), variables)
            return
        grads = [aggregator.dense(it) for it in grads]
        aggregator.prepare(grads)

        def step() -> None:
            bad = aggregator.bad.read_value()
            found: list[Any] = []

            def reduce(held: list[Any]) -> list[Any]:
                flag, reduced = self._with_flag(held, variables, bad)
                found.append(flag)
                return reduced

            reduced = aggregator.take(reduce, grads)
            self._decide(scale, (found[0], reduced), variables)

        self._step_if(aggregator.add(grads), step, variables)

    def _with_flag(self, grads: Sequence[Any], variables: Sequence[Any], bad: Any) -> tuple[Any, list[Any]]:
        """The reduced gradients, and whether any rank's were not finite, in one submission."""
        *reduced, flag = self._reducer([*grads, bad], [*variables, None])
        return flag, reduced

    def _decide(self, scale: Any, reduced: tuple[Any, list[Any]], variables: Sequence[Any]) -> None:
        flag, grads = reduced
        factor, counter = plain(scale.dynamic_scale), plain(scale.step_counter)

        def apply() -> None:
            now = factor.read_value()
            self.apply_reduced([None if it is None else _times(it, 1.0 / now) for it in grads], variables)
            grows = tf.equal(counter, scale.dynamic_growth_steps - 1)
            factor.assign(tf.where(grows, now * 2.0, now))
            counter.assign(tf.where(grows, tf.zeros_like(counter), counter + 1))

        def skip() -> None:
            factor.assign(factor * 0.5)
            counter.assign(tf.zeros_like(counter))

        # A wire format of 16 bits may overflow in the sum.
        whole = tf.logical_and(tf.equal(flag, 0.0), _finite(grads))
        tf.cond(whole, lambda: _done(apply()), lambda: _done(skip()))


def _done(_: None) -> Any:
    return tf.constant(True)


def _finite(grads: Sequence[Any]) -> Any:
    values = [it.values if isinstance(it, tf.IndexedSlices) else it for it in grads if it is not None]
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(it)) for it in values])


def _times(grad: Any, factor: Any) -> Any:
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(_times(grad.values, factor), grad.indices, grad.dense_shape)
    return grad * tf.cast(factor, grad.dtype)


def wrap(optimizer: Any, settings: Settings) -> Any:
    """A distributed optimizer of the same class and configuration. Its class has that class' name,
    so what is saved can be loaded without Horovod.

    Around a `LossScaleOptimizer` it becomes one around the distributed optimizer.
    """
    if is_distributed(optimizer):
        raise ValueError(f"{optimizer.name} is distributed already")
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        return type(optimizer)(
            wrap(inner, settings),
            name=optimizer.name,
            initial_scale=optimizer.initial_scale,
            dynamic_growth_steps=optimizer.dynamic_growth_steps,
        )
    kind = type(optimizer)
    distributed = type(kind.__name__, (Distributed, kind), {"_settings": settings, "__module__": "horovod._keras"})
    _saved_as(distributed, kind)
    return distributed.from_config(optimizer.get_config())


def _saved_as(distributed: Any, kind: Any) -> None:
    """Saves the optimizer under the name of Keras' own class."""
    from keras.src import api_export

    name = api_export.get_name_from_symbol(kind)
    if name is not None:
        api_export.REGISTERED_OBJS_TO_NAMES[distributed] = name
