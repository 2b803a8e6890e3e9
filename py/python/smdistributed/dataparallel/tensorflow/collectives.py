"""Process functions and collectives of SageMaker's library for TensorFlow."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import horovod.tensorflow as hvd


class ReduceOp(enum.Enum):
    """How tensors are reduced."""

    AVERAGE = "average"
    SUM = "sum"
    MIN = "min"
    MAX = "max"

    @property
    def of_horovod(self) -> int:
        """Horovod's number for it."""
        return {"average": hvd.Average, "sum": hvd.Sum, "min": hvd.Min, "max": hvd.Max}[self.value]


def reduction(op: Any, what: str) -> int:
    """Horovod's number of a `ReduceOp`; `ValueError` for something else."""
    if not isinstance(op, ReduceOp):
        raise ValueError(f"{what}: op is {op!r}; it is one of ReduceOp.AVERAGE, SUM, MIN and MAX")
    return op.of_horovod


def init() -> None:
    """Joins the world; once only."""
    if hvd.is_initialized():
        raise RuntimeError("init() called more than once: smdistributed.dataparallel is already initialized")
    hvd.init()


rank, size, local_rank, local_size = hvd.rank, hvd.size, hvd.local_rank, hvd.local_size
is_initialized = hvd.is_initialized
shutdown = hvd.shutdown


def allreduce(
    tensor: Any,
    param_index: int,
    num_params: int,
    compression: Any = hvd.Compression.none,
    op: ReduceOp = ReduceOp.AVERAGE,
) -> Any:
    """The reduction of the `param_index`-th of `num_params` tensors, which all ranks reduce in
    the same order and with the same shapes.
    """
    if not 0 <= param_index < num_params:
        raise ValueError(
            f"allreduce: param_index is {param_index}; it is the tensor's place in a list of num_params = {num_params}"
        )
    return hvd.allreduce(
        tensor, compression=compression, op=reduction(op, "allreduce"), name=f"smddp.{param_index}of{num_params}"
    )


def oob_allreduce(tensor: Any, compression: Any = hvd.Compression.none, op: ReduceOp = ReduceOp.AVERAGE) -> Any:
    """The average of something that is no gradient, such as a loss; eagerly and in a
    `tf.function`.
    """
    if op is not ReduceOp.AVERAGE:
        raise ValueError(
            f"oob_allreduce: op is {op!r}; it averages only. Use allreduce(tensor, 0, 1, op=...) for another reduction"
        )
    return hvd.allreduce(tensor, compression=compression, op=hvd.Average)


def broadcast(tensor: Any, root_rank: int) -> Any:
    """The root's tensor."""
    return hvd.broadcast(tensor, root_rank)


def broadcast_variables(variables: Sequence[Any], root_rank: int) -> Any:
    """Gives the variables of all ranks the root's values."""
    return hvd.broadcast_variables(variables, root_rank=root_rank)


def broadcast_global_variables(root_rank: int) -> Any:
    """The op that does so for all global variables of a graph of TensorFlow 1."""
    return hvd.broadcast_global_variables(root_rank)


def overlap(tensor: Any) -> Any:
    """The tensor."""
    return tensor
