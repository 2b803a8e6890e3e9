"""Elastic training with TensorFlow: states of variables and Keras models, and the loop around
training.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.elastic import ObjectState, renew, run_fn
from horovod.common.exceptions import HorovodInternalError
from horovod.tensorflow.functions import broadcast_object, broadcast_object_fn, broadcast_variables
from horovod.tensorflow.mpi_ops import init, rank, shutdown
from horovod.tensorflow.util import plain

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Makes `func(state, ...)` elastic: it is called again, with the state of the last commit when
    ranks were lost, with the current one when hosts come or go.

    Before each call, all ranks get rank 0's state. There must be no collective before its first
    call.
    """

    @functools.wraps(func)
    def translated(state: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return func(state, *args, **kwargs)
        except tf.errors.OpError as error:
            # In a graph an operation's failure arrives as TensorFlow's error with the text of ours.
            if HorovodInternalError.__name__ in error.message:
                raise HorovodInternalError(error.message) from error
            raise

    return run_fn(translated, lambda: renew(init, shutdown))


def _variables(optimizer: Any) -> list[Any]:
    if optimizer is None:
        return []
    variables = optimizer.variables
    return [plain(it) for it in (variables() if callable(variables) else variables)]


class TensorFlowKerasState(ObjectState):
    """A Keras model, its optimizer (that of the model unless given), and further values as
    attributes. The model must be built.
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        if not getattr(model, "built", True):
            raise ValueError("Model must be built first. Run `model.build(input_shape)`.")
        self.model = model
        self.optimizer = optimizer or getattr(model, "optimizer", None)
        self.backend = backend
        self._in_graph = not tf.executing_eagerly()
        if self._in_graph:
            self._session = tf.compat.v1.keras.backend.get_session()
            self._broadcast = broadcast_variables(tf.compat.v1.global_variables(), root_rank=0)
            bcast_object = broadcast_object_fn(session=self._session)
        else:
            bcast_object = broadcast_object
        self._build_optimizer()
        self._save_model()
        super().__init__(bcast_object=bcast_object, get_rank=rank, **kwargs)

    def _build_optimizer(self) -> None:
        # A rank that is new has no slots yet, and all ranks must broadcast as many variables.
        optimizer = self.optimizer
        if (
            optimizer is not None
            and not self._in_graph
            and hasattr(optimizer, "build")
            and not getattr(optimizer, "built", True)
        ):
            optimizer.build(self.model.trainable_variables)

    def _kept(self) -> list[Any]:
        return [plain(it) for it in self.model.weights] + _variables(self.optimizer)

    def _save_model(self) -> None:
        kept = self._kept()
        self._values = self._session.run(kept) if self._in_graph else [it.numpy().copy() for it in kept]

    def save(self) -> None:
        """Keeps copies of the model's and the optimizer's variables, and of the attributes."""
        self._save_model()
        super().save()

    def restore(self) -> None:
        """Sets them to what was saved last. Variables that were made since then begin from 0."""
        kept = self._kept()
        for i, variable in enumerate(kept):
            value = self._values[i] if i < len(self._values) else None
            if self._in_graph:
                variable.load(value, self._session)
            else:
                variable.assign(tf.zeros_like(variable) if value is None else value)
        super().restore()

    def sync(self) -> None:
        """All ranks get rank 0's, and keep them."""
        if self._in_graph:
            self._session.run(self._broadcast)
        else:
            self._build_optimizer()
            broadcast_variables(self._kept(), root_rank=0)
        self._save_model()
        super().sync()


class TensorFlowState(ObjectState):
    """Variables (all global ones unless given), and further values as attributes. In a graph of
    TensorFlow 1 it needs the session.
    """

    def __init__(self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any) -> None:
        self.variables = list(variables or tf.compat.v1.global_variables())
        self.session = session or (None if tf.executing_eagerly() else tf.compat.v1.get_default_session())
        self._in_graph = not tf.executing_eagerly()
        self._broadcast = broadcast_variables(self.variables, root_rank=0) if self._in_graph else None
        bcast_object = broadcast_object_fn(session=self.session) if self._in_graph else broadcast_object
        self._save_model()
        super().__init__(bcast_object=bcast_object, get_rank=rank, **kwargs)

    def _save_model(self) -> None:
        self._values = (
            self.session.run(self.variables) if self._in_graph else [plain(it).numpy().copy() for it in self.variables]
        )

    def save(self) -> None:
        """Keeps copies of the variables and the attributes."""
        self._save_model()
        super().save()

    def restore(self) -> None:
        """Sets them to what was saved last."""
        for variable, value in zip(self.variables, self._values, strict=True):
            if self._in_graph:
                variable.load(value, self.session)
            else:
                variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """All ranks get rank 0's, and keep them."""
        if self._in_graph:
            self.session.run(self._broadcast)
        else:
            broadcast_variables(self.variables, root_rank=0)
        self._save_model()
        super().sync()
