"""Lets Keras 3 run scripts for Keras 2, as soon as a Horovod or SageMaker module for TensorFlow is
imported.

`optimizer.lr` and `lr=`, `optimizer.variables()`,
`model.compile(experimental_run_tf_function=False)`, and `model.save("directory")` as an export.
Also, models whose optimizer waits for other processes are not compiled by XLA, and a loss scale
works with a distributed optimizer.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

import tensorflow as tf

__all__ = ["CallableList", "accept"]


class CallableList(list):
    """A list that may be called: Keras 2 had a method where Keras 3 has a list."""

    def __call__(self) -> CallableList:
        """The list."""
        return self


def is_keras3() -> bool:
    """Whether TensorFlow's Keras is Keras 3."""
    version = getattr(tf.keras, "__version__", None)
    version = version() if callable(version) else version
    return version is not None and int(str(version).split(".")[0]) >= 3


def of_keras3(thing: Any) -> bool:
    """Whether an optimizer or a model is one of Keras 3: both Keras may be in a program."""
    return any(it.__module__.split(".")[0] == "keras" for it in type(thing).__mro__)


@functools.cache
def note(what: str) -> None:
    """Says something once, on standard error."""
    print(f"shoal: {what}", file=sys.stderr)


@functools.cache
def accept() -> None:
    """Changes Keras 3; does nothing with another Keras."""
    if not is_keras3() and "keras" not in sys.modules:
        return
    import keras

    if int(keras.__version__.split(".")[0]) < 3:
        return
    from keras.src.optimizers.base_optimizer import BaseOptimizer
    from keras.src.trainers.trainer import Trainer

    _optimizers(BaseOptimizer)
    _variables(BaseOptimizer)
    _variables(keras.optimizers.LossScaleOptimizer)
    _loss_scale(keras.optimizers.LossScaleOptimizer)
    _compile(Trainer)
    _save(keras.Model)


def _optimizers(base: Any) -> None:
    made = base.__init__

    @functools.wraps(made)
    def init(self: Any, learning_rate: Any = 0.001, *args: Any, **kwargs: Any) -> None:
        older = kwargs.pop("lr", None)
        made(self, learning_rate if older is None else older, *args, **kwargs)

    base.__init__ = init
    if not hasattr(base, "lr"):
        base.lr = property(lambda self: self.learning_rate, lambda self, value: setattr(self, "learning_rate", value))


def _variables(kind: Any) -> None:
    listed = kind.__dict__["variables"].fget
    kind.variables = property(lambda self: CallableList(listed(self)))


def _loss_scale(kind: Any) -> None:
    apply = kind.apply

    @functools.wraps(apply)
    def apply_with_ranks(self: Any, grads: Any, trainable_variables: Any = None) -> None:
        from horovod._keras.optimizer import Distributed

        if isinstance(self.inner_optimizer, Distributed):
            return self.inner_optimizer.apply_scaled(self, grads, trainable_variables)
        return apply(self, grads, trainable_variables)

    kind.apply = apply_with_ranks


def _compile(trainer: Any) -> None:
    compiled = trainer.compile

    @functools.wraps(compiled)
    def compile_without_xla(self: Any, optimizer: Any = "rmsprop", *args: Any, **kwargs: Any) -> Any:
        from horovod._keras.optimizer import is_distributed

        for name in ("experimental_run_tf_function", "sample_weight_mode"):
            if name in kwargs:
                del kwargs[name]
                note(f"model.compile({name}=...) is of Keras 2 and has no effect in Keras 3")
        if is_distributed(optimizer):
            if kwargs.get("jit_compile") is True:
                note(
                    "model.compile(jit_compile=True): XLA cannot compile collectives of the host; the model is trained without it"
                )
            if len(args) < 7:
                kwargs["jit_compile"] = False
        return compiled(self, optimizer, *args, **kwargs)

    trainer.compile = compile_without_xla


def _save(model: Any) -> None:
    saved = model.save

    @functools.wraps(saved)
    def save(self: Any, filepath: Any, overwrite: bool = True, zipped: Any = None, **kwargs: Any) -> Any:
        path = os.fspath(filepath) if isinstance(filepath, str | os.PathLike) else None
        asked = kwargs.get("save_format")
        if path is not None and zipped is None and asked in (None, "tf") and not os.path.splitext(path)[1]:
            note(
                f"model.save({path!r}): Keras 3 saves files .keras; a directory gets model.export's SavedModel, for serving"
            )
            return self.export(path)
        return saved(self, filepath, overwrite=overwrite, zipped=zipped, **kwargs)

    model.save = save
