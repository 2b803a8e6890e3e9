"""Variables and objects to and from all ranks."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import numpy as np
import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import bridge
from horovod.tensorflow.mpi_ops import allgather, broadcast, broadcast_many, rank

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn", "broadcast_variables"]


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> Any:
    """Gives the variables of all ranks the root's values, in one operation. In a graph of
    TensorFlow 1, the op that does so.

    All ranks must have as many variables, in the same order; `inplace` is accepted, no copy of the
    model is made either way.
    """
    variables = list(variables)
    if not variables:
        return None if tf.executing_eagerly() else tf.no_op()
    base = "broadcast_variables" if tf.executing_eagerly() else bridge.name_of("broadcast", [], "broadcast_variables")
    values = broadcast_many([tf.convert_to_tensor(it) for it in variables], base, root_rank, process_set)
    assigned = [variable.assign(value) for variable, value in zip(variables, values, strict=True)]
    if tf.executing_eagerly():
        return None
    return tf.group(*[it for it in assigned if it is not None])


def _pickled(obj: Any) -> np.ndarray:
    buffer = io.BytesIO()
    cloudpickle.dump(obj, buffer)
    return np.frombuffer(buffer.getvalue(), np.uint8)


def _value(tensor: Any, session: Any) -> np.ndarray:
    if tf.executing_eagerly():
        return tensor.numpy()
    session = session or tf.compat.v1.get_default_session()
    if session is None:
        raise ValueError(
            "broadcast_object and allgather_object in a graph need a session: give session=, or enter one by `with session.as_default()`"
        )
    return session.run(tensor)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The object of `root_rank`, pickled on the way. In a graph of TensorFlow 1 it needs a
    session.
    """
    is_root = rank() == root_rank
    data = _pickled(obj) if is_root else np.zeros(0, np.uint8)
    # The object's type may differ between ranks, so it is no part of the name.
    base = f"broadcast_object.{name}" if name else "broadcast_object"
    size = int(
        _value(
            broadcast(tf.constant([len(data)], tf.int64), root_rank, f"{base}.sz", process_set=process_set), session
        )[0]
    )
    sent = tf.constant(data if is_root else np.zeros(size, np.uint8))
    received = _value(broadcast(sent, root_rank, f"{base}.t", process_set=process_set), session)
    return obj if is_root else cloudpickle.loads(received.tobytes())


def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """A function as `broadcast_object` whose ops are made once: for graphs of TensorFlow 1
    (eagerly it is `broadcast_object` itself).
    """
    if tf.executing_eagerly():
        return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)
    base = name or "broadcast_object_fn"
    size = tf.compat.v1.placeholder(tf.int64, [1], name="bcast_object_size")
    data = tf.compat.v1.placeholder(tf.uint8, [None], name="bcast_object_data")
    sized = broadcast(size, root_rank, f"{base}.sz", process_set=process_set)
    sent = broadcast(data, root_rank, f"{base}.t", process_set=process_set)

    def function(obj: Any) -> Any:
        its = session or tf.compat.v1.get_default_session()
        is_root = rank() == root_rank
        pickled = _pickled(obj) if is_root else np.zeros(0, np.uint8)
        length = int(its.run(sized, {size: [len(pickled)]})[0])
        received = its.run(sent, {data: pickled if is_root else np.zeros(length, np.uint8)})
        return obj if is_root else cloudpickle.loads(received.tobytes())

    return function


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks of the set, in their order, pickled on the way."""
    base = f"allgather_object.{name}" if name else "allgather_object"
    data = _pickled(obj)
    sizes = _value(allgather(tf.constant([len(data)], tf.int64), f"{base}.sz", process_set=process_set), session)
    gathered = _value(allgather(tf.constant(data), f"{base}.t", process_set=process_set), session)
    ends = np.cumsum(sizes)
    return [cloudpickle.loads(gathered[end - count : end].tobytes()) for end, count in zip(ends, sizes, strict=True)]
