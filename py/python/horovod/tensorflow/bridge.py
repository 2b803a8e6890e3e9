"""Between TensorFlow and the engine: tensors as memory, results as tensors, failures as
TensorFlow's errors.

Eagerly the engine works on a tensor's own memory. In a graph the same function is called by a
stateful op, so within a `tf.function` collectives keep the order of the program on every rank.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from horovod.common.engine import current
from horovod.common.exceptions import HorovodInternalError
from horovod.tensorflow import waiting
from shoal.comm import CommError, ConfigError
from shoal.named import Mismatch

__all__ = ["call", "collective", "name_of"]

_CODES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "bool": "bool",
}
#: Types that the engine lacks are moved, not reduced, as another type of their size.
_MOVED = {"uint16": np.int16, "uint32": np.int32, "uint64": np.int64}
_MOVES = {"allgather", "broadcast", "alltoall"}

_counters: dict[str, int] = defaultdict(int)
_in_progress: dict[str, threading.Lock] = defaultdict(threading.Lock)


def reset_names() -> None:
    """Unnamed operations are counted from 0 again: the ranks of a new world have counted
    differently.
    """
    _counters.clear()


def name_of(kind: str, tensors: Sequence[Any], name: str | None, ignore_name_scope: bool = False) -> str:
    """An operation's name on all ranks. Unnamed ones are called by their number, in a graph by
    the tensor's name.
    """
    if tf.executing_eagerly():
        if name is not None:
            return name
        _counters[kind] += 1
        return f"{kind}.noname.{_counters[kind]}"
    if name is None:
        ends = dict.fromkeys([tensors[0].name, tensors[-1].name]) if tensors else [kind]
        name = "_".join([f"Horovod{kind.capitalize()}", *(re.sub("[^a-zA-Z0-9_]", "_", it) for it in ends)])
    if ignore_name_scope:
        return name
    return tf.compat.v1.get_default_graph().unique_name(re.sub("[^A-Za-z0-9_.\\-/]", "_", name))


def _memory(tensor: Any) -> np.ndarray:
    """An eager tensor's memory, without a copy where TensorFlow gives it out."""
    return np.asarray(tensor._numpy() if hasattr(tensor, "_numpy") else tensor.numpy())


def call(
    function: Callable[..., list[np.ndarray]], tensors: Sequence[Any], dtypes: Sequence[Any], shapes: Sequence[Any]
) -> list[Any]:
    """Calls `function` with the tensors' memory: at once if eager, else when the graph runs.
    `shapes`: those of the results, as far as known.
    """
    if tf.executing_eagerly():
        return [tf.convert_to_tensor(it) for it in function(*map(_memory, tensors))]
    # A function runs its ops in the program's order, so that one waits at a time; a graph of
    # TensorFlow 1 and what it branches to have no order.
    graph = tf.compat.v1.get_default_graph()
    ordered = getattr(graph, "_add_control_dependencies", graph.building_function)
    with tf.device("/cpu:0"):
        results = (tf.numpy_function if ordered else waiting.compute)(function, list(tensors), list(dtypes))
    results = list(results) if isinstance(results, list | tuple) else [results]
    for result, shape in zip(results, shapes, strict=True):
        result.set_shape(shape)
    return results


def _as_sent(array: np.ndarray, kind: str) -> tuple[np.ndarray, str]:
    array = np.ascontiguousarray(array).reshape(array.shape)
    moved = _MOVED.get(array.dtype.name)
    if moved is not None and kind in _MOVES:
        array = array.view(moved)
    code = _CODES.get(array.dtype.name)
    if code is None:
        what = f"{kind} of tensors of {array.dtype.name}: not supported; cast to one of {', '.join(sorted(_CODES))}"
        raise tf.errors.InvalidArgumentError(None, None, what)
    return array, code


def collective(
    kind: str,
    arrays: Sequence[np.ndarray],
    names: Sequence[str],
    *,
    op: str = "sum",
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    splits: Sequence[int] | None = None,
    set_id: int = 0,
) -> tuple[list[np.ndarray], Any]:
    """One submission to the engine, waited for. Returns the results and the handle."""
    engine = current()
    sent = [_as_sent(it, kind) for it in arrays]
    same_shape = kind in ("allreduce", "broadcast")
    received = [np.empty_like(it) if same_shape else None for it, _ in sent]
    tensors = [
        (
            name,
            it.__array_interface__["data"][0],
            0 if out is None else out.__array_interface__["data"][0],
            it.shape,
            code,
        )
        for name, (it, code), out in zip(names, sent, received, strict=True)
    ]
    more: dict[str, Any] = {"splits": list(splits)} if splits is not None else {}
    # Unnamed operations have a new name each time.
    with contextlib.nullcontext() if ".noname." in names[0] else _in_progress[names[0]]:
        try:
            handle = engine.submit(
                kind,
                tensors,
                op=op,
                prescale=prescale,
                postscale=postscale,
                root=root,
                set=set_id,
                grouped=len(tensors) > 1,
                keep=(sent, received),
                wait=True,
                **more,
            )
            handle.wait()
        except Mismatch as error:
            raise tf.errors.FailedPreconditionError(None, None, f"Horovod{kind.capitalize()}: {error}") from error
        except ConfigError as error:
            raise tf.errors.InvalidArgumentError(
                None, None, f"Horovod{kind.capitalize()} of {names[0]}: {error}"
            ) from error
        except CommError as error:
            raise HorovodInternalError(f"Horovod{kind.capitalize()} of {names[0]}: {error}") from error
    results = []
    for i, (array, out) in enumerate(zip(arrays, received, strict=True)):
        if out is None:
            memory, shape = handle.output(i)
            like = sent[i][0].dtype
            # The engine's memory is at least one byte long.
            out = np.from_dlpack(memory)[: math.prod(shape) * like.itemsize].view(like).reshape(shape)
        results.append(out.view(array.dtype))
    return results, handle
