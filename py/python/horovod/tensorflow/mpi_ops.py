"""Collectives on TensorFlow's tensors, each with its gradient, and the process functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from horovod.common.engine import current
from horovod.common.process_sets import ProcessSet, global_process_set, identity
from horovod.common.util import get_average_backwards_compatibility_fun, num_rank_is_power_2
from horovod.common.world import *  # noqa: F403 (its `__all__`)
from horovod.common.world import Average, Sum, is_initialized, local_rank, local_size, rank, reduction, size
from horovod.common.world import basics as _basics
from horovod.tensorflow import bridge
from horovod.tensorflow.util import _executing_eagerly as _executing_eagerly

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)
check_num_rank_power_of_2 = num_rank_is_power_2


def init(*args: Any, **kwargs: Any) -> None:
    """Joins the world; see `horovod.common.basics.HorovodBasics.init`."""
    if not is_initialized():
        bridge.reset_names()
    _basics.init(*args, **kwargs)


def shutdown() -> None:
    """Leaves the world."""
    _basics.shutdown()


def _tensors(tensors: Sequence[Any]) -> list[Any]:
    return [tf.convert_to_tensor(it) for it in tensors]


def _names(base: str, tensors: Sequence[Any]) -> list[str]:
    return [base] if len(tensors) == 1 else [f"{base}.{i}" for i in range(len(tensors))]


def reduce_many(
    tensors: Sequence[Any],
    base: str,
    op: int,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    alone: bool = False,
) -> list[Any]:
    """All tensors in one submission, without a gradient. `alone`: ranks that are alone in the
    set, or not in it, keep their tensors.
    """
    names, word = _names(base, tensors), reduction(op, "allreduce")

    def compute(*arrays: np.ndarray) -> list[np.ndarray]:
        more = {"op": word, "prescale": prescale_factor, "postscale": postscale_factor, "set_id": identity(process_set)}
        if alone and (not process_set.included() or process_set.size() == 1):
            return list(arrays)
        return bridge.collective("allreduce", arrays, names, **more)[0]

    return bridge.call(compute, tensors, [it.dtype for it in tensors], [it.shape for it in tensors])


def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The reduction of one tensor; its gradient is reduced likewise."""
    return _grouped_allreduce(
        [tensor], name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set, "allreduce"
    )[0]


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    kind: str = "groupedallreduce",
) -> list[Any]:
    """The reductions of some tensors, all at once or none."""
    tensors = _tensors(tensors)

    @tf.custom_gradient
    def reduced(*given: Any) -> Any:
        base = bridge.name_of(kind, given, name, ignore_name_scope)

        def gradient(*grads: Any) -> Any:
            of_name = None if name is None else f"{name}.gradient"
            return _grouped_allreduce(
                grads, of_name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set, kind
            )

        return reduce_many(given, base, op, prescale_factor, postscale_factor, process_set), gradient

    return list(reduced(*tensors))


def _first_dimension_free(tensor: Any) -> tf.TensorShape:
    shape = tensor.shape
    return shape if shape.rank is None else tf.TensorShape([None]).concatenate(shape[1:])


def gather_many(
    tensors: Sequence[Any], base: str, process_set: ProcessSet = global_process_set, alone: bool = False
) -> list[Any]:
    """All tensors' rows of all ranks in one submission, without a gradient."""
    names = _names(base, tensors)

    def compute(*arrays: np.ndarray) -> list[np.ndarray]:
        set_id = identity(process_set)
        if alone and (not process_set.included() or process_set.size() == 1):
            return list(arrays)
        return bridge.collective("allgather", arrays, names, set_id=set_id)[0]

    return bridge.call(compute, tensors, [it.dtype for it in tensors], [_first_dimension_free(it) for it in tensors])


def allgather(
    tensor: Any, name: str | None = None, ignore_name_scope: bool = False, process_set: ProcessSet = global_process_set
) -> Any:
    """The ranks' tensors one after the other along dimension 0, in which they may differ. Its
    gradient is averaged, and each rank gets its own rows.
    """
    return grouped_allgather([tensor], name, ignore_name_scope, process_set, "allgather")[0]


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    kind: str = "groupedallgather",
) -> list[Any]:
    """`allgather` of some tensors, all at once or none."""
    tensors = _tensors(tensors)

    @tf.custom_gradient
    def gathered(*given: Any) -> Any:
        base = bridge.name_of(kind, given, name, ignore_name_scope)

        def gradient(*grads: Any) -> Any:
            return [_own_rows(grad, it, ignore_name_scope, process_set) for grad, it in zip(grads, given, strict=True)]

        return gather_many(given, base, process_set), gradient

    return list(gathered(*tensors))


def _own_rows(grad: Any, of: Any, ignore_name_scope: bool, process_set: ProcessSet) -> Any:
    """This rank's rows of the average of the ranks' gradients."""
    grad = _allreduce(grad, op=Average, ignore_name_scope=ignore_name_scope, process_set=process_set)
    rows = allgather(tf.reshape(tf.shape(of)[0], [1]), ignore_name_scope=ignore_name_scope, process_set=process_set)
    own = process_set.rank()
    begin = tf.reduce_sum(rows[:own])
    return grad[begin : begin + rows[own]]


def broadcast_many(
    tensors: Sequence[Any], base: str, root_rank: int, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The root's tensors in one submission, without a gradient."""
    names = [f"{base}.{i}of{len(tensors)}" for i in range(len(tensors))] if len(tensors) > 1 else [base]

    def compute(*arrays: np.ndarray) -> list[np.ndarray]:
        return bridge.collective("broadcast", arrays, names, root=root_rank, set_id=identity(process_set))[0]

    return bridge.call(compute, tensors, [it.dtype for it in tensors], [it.shape for it in tensors])


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tensor of `root_rank`, a rank of the world. Its gradient goes to the root, averaged;
    that of the others is 0.
    """

    @tf.custom_gradient
    def given_out(given: Any) -> Any:
        base = bridge.name_of("broadcast", [given], name, ignore_name_scope)

        def gradient(grad: Any) -> Any:
            grad = _allreduce(grad, op=Average, ignore_name_scope=ignore_name_scope, process_set=process_set)
            return grad if rank() == root_rank else tf.zeros_like(grad)

        return broadcast_many([given], base, root_rank, process_set)[0], gradient

    return given_out(tf.convert_to_tensor(tensor))


def broadcast_(
    variables: Sequence[Any], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Gives variables the root's values. Returns these."""
    variables = list(variables)
    if not variables:
        return []
    values = _tensors(variables)
    base = bridge.name_of(
        "broadcast_", values, name or "_".join(dict.fromkeys(str(it.name) for it in (variables[0], variables[-1])))
    )
    results = broadcast_many(values, base, root_rank, process_set)
    assigned = [variable.assign(value) for variable, value in zip(variables, results, strict=True)]
    if tf.executing_eagerly():
        return [tf.convert_to_tensor(it) for it in variables]
    with tf.control_dependencies([it for it in assigned if it is not None]):
        return [tf.identity(it) for it in results]


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends rows of dimension 0 to each rank, `splits[r]` to the r-th of the set or equal
    shares. Returns the received rows; with `splits` also the number of rows from each rank.
    """
    tensor = tf.convert_to_tensor(tensor)
    given_splits = tf.zeros([0], tf.int32) if splits is None else tf.cast(tf.convert_to_tensor(splits), tf.int32)

    def compute(array: np.ndarray, counts: np.ndarray, base: str) -> list[np.ndarray]:
        ranks = process_set.size()
        if splits is None and array.shape[0] % ranks:
            _refused(
                f"alltoall of {base}: dimension 0 is {array.shape[0]}, which {ranks} ranks do not divide; give splits"
            )
        if splits is not None and (counts.shape != (ranks,) or counts.sum() != array.shape[0] or (counts < 0).any()):
            _refused(
                f"alltoall of {base}: splits are {counts.tolist()}; {ranks} counts are needed, which sum up to {array.shape[0]}, dimension 0"
            )
        parts = [array.shape[0] // ranks] * ranks if splits is None else counts.tolist()
        results, handle = bridge.collective("alltoall", [array], [base], splits=parts, set_id=identity(process_set))
        return [results[0], np.asarray(handle.received_splits(), np.int32)]

    @tf.custom_gradient
    def exchanged(given: Any, counts: Any) -> Any:
        base = bridge.name_of("alltoall", [given], name, ignore_name_scope)
        results = bridge.call(
            lambda a, c: compute(a, c, base),
            [given, counts],
            [given.dtype, tf.int32],
            [_first_dimension_free(given), [None]],
        )

        def gradient(grad: Any, _: Any) -> Any:
            back, _ = alltoall(grad, splits=results[1], ignore_name_scope=ignore_name_scope, process_set=process_set)
            return back, None

        return results, gradient

    output, received = exchanged(tensor, given_splits)
    return output if splits is None else (output, received)


def _refused(what: str) -> None:
    raise tf.errors.InvalidArgumentError(None, None, what)


def _reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """This rank's rows of the reduction; the first (rows mod ranks) ranks have one more."""
    return _grouped_reducescatter(
        [tensor], name, op, ignore_name_scope, process_set, prescale_factor, postscale_factor, "reducescatter"
    )[0]


def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    kind: str = "groupedreducescatter",
) -> list[Any]:
    """`reducescatter` of some tensors, all at once or none."""
    if op not in (Average, Sum):
        raise ValueError("reducescatter: op is hvd.Average or hvd.Sum")
    tensors = _tensors(tensors)
    if any(it.shape.rank == 0 for it in tensors):
        raise ValueError("reducescatter: a tensor of no dimension cannot be divided among ranks; use allreduce")

    @tf.custom_gradient
    def scattered(*given: Any) -> Any:
        base = bridge.name_of(kind, given, name, ignore_name_scope)
        names, word = _names(base, given), reduction(op, "reducescatter")

        def compute(*arrays: np.ndarray) -> list[np.ndarray]:
            more = {
                "op": word,
                "prescale": prescale_factor,
                "postscale": postscale_factor,
                "set_id": identity(process_set),
            }
            return bridge.collective("reducescatter", arrays, names, **more)[0]

        def gradient(*grads: Any) -> Any:
            factor = (process_set.size() if op == Sum else 1) * prescale_factor * postscale_factor
            grads = [it if factor == 1 else it * tf.cast(factor, it.dtype) for it in grads]
            return [allgather(it, ignore_name_scope=ignore_name_scope, process_set=process_set) for it in grads]

        results = bridge.call(compute, given, [it.dtype for it in given], [_first_dimension_free(it) for it in given])
        return results, gradient

    return list(scattered(*tensors))


def join() -> Any:
    """Waits until all ranks have joined, and meanwhile supplies zeros to the others' allreduces.
    Returns the rank that joined last.
    """

    def compute() -> list[np.ndarray]:
        handle = current().submit("join", [], wait=True)
        handle.wait()
        # Ranks that had less to do have counted fewer unnamed operations.
        bridge.reset_names()
        return [np.int32(handle.last_joined())]

    return bridge.call(compute, [], [tf.int32], [[]])[0]


def _told(value: Any, name: str | None) -> Any:
    """A scalar that is evaluated when the graph runs."""
    result = bridge.call(lambda: [np.int32(value())], [], [tf.int32], [[]])[0]
    return result if name is None or tf.executing_eagerly() else tf.identity(result, name)


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """The number of ranks of a set, when the graph runs."""
    return _told(lambda: len(current().sets()[process_set_id]) if process_set_id else size(), name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """1 if this rank is in the set, else 0; -1 before `init`, -2 if there is no such set; when
    the graph runs.
    """

    def value() -> int:
        if not is_initialized():
            return -1
        ranks = range(size()) if process_set_id == 0 else current().sets().get(process_set_id)
        return -2 if ranks is None else int(rank() in ranks)

    return _told(value, name)


def local_size_op(name: str | None = None) -> Any:
    """The number of ranks of this host, when the graph runs."""
    return _told(local_size, name)


def rank_op(name: str | None = None) -> Any:
    """This process's rank, when the graph runs."""
    return _told(rank, name)


def local_rank_op(name: str | None = None) -> Any:
    """Its rank on this host, when the graph runs."""
    return _told(local_rank, name)
