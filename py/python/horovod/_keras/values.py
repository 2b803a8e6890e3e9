"""Collectives on values, in `horovod.keras` and `horovod.tensorflow.keras` alike."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import horovod.tensorflow as _hvd
from horovod._keras import value_of
from horovod.tensorflow import Average, Compression

__all__ = ["allgather", "allreduce", "broadcast", "broadcast_global_variables", "reducescatter"]


def broadcast_global_variables(root_rank: int) -> Any:
    """Gives all ranks the root's global variables, in a graph of TensorFlow 1 (`RuntimeError`
    when executing eagerly).
    """
    return value_of(_hvd.broadcast_global_variables(root_rank))


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """The reduction of a value that can be made a tensor, of the same shape on all ranks;
    Average unless `op`, or the older `average`, says otherwise.
    """
    more = {
        "prescale_factor": prescale_factor,
        "postscale_factor": postscale_factor,
        "name": name,
        "op": op,
        "compression": compression,
    }
    return value_of(_hvd.allreduce(tf.constant(value), average, **more))


def allgather(value: Any, name: str | None = None) -> Any:
    """The ranks' values one after the other along dimension 0, in which they may differ."""
    return value_of(_hvd.allgather(tf.constant(value), name))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The root's value."""
    return value_of(_hvd.broadcast(tf.constant(value), root_rank, name))


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """This rank's rows of the reduction."""
    return value_of(_hvd.reducescatter(tf.constant(value), op=op, name=name))
