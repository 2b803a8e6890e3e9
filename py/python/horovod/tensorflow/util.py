"""Small things that the modules of this package share; scripts import some of them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["plain", "reference", "refs_to_vars", "vars_to_refs"]


def _executing_eagerly() -> bool:
    """Whether operations run at once."""
    return tf.executing_eagerly()


def plain(variable: Any) -> Any:
    """TensorFlow's own variable within one of Keras 3."""
    inner = getattr(variable, "_value", None)
    return inner if inner is not None and hasattr(inner, "assign") else variable


def reference(variable: Any) -> Any:
    """A hashable reference to a variable; equal for a Keras variable and the one within."""
    variable = plain(variable)
    return variable.ref() if hasattr(variable, "ref") else id(variable)


def vars_to_refs(variables: Any) -> Any:
    """Lists of lists of variables as hashable tuples."""
    return tuple(map(vars_to_refs, variables)) if isinstance(variables, list) else variables.ref()


def refs_to_vars(references: Any) -> Any:
    """The reverse of `vars_to_refs`."""
    return [refs_to_vars(it) for it in references] if isinstance(references, tuple) else references.deref()
