"""The optimizer that reduces the gradients of some layers only, in `horovod.keras` and
`horovod.tensorflow.keras` alike.
"""

from __future__ import annotations

from typing import Any

from horovod._keras import create_distributed_optimizer
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import Average, Compression
from horovod.tensorflow.gradients import check_groups, variables_of_layers

__all__ = ["PartialDistributedOptimizer"]


def PartialDistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: int | list[list[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """A `DistributedOptimizer` that does not reduce the gradients of `local_layers`, one layer
    or several.
    """
    wrapped = create_distributed_optimizer(
        optimizer=optimizer,
        name=name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=check_groups(0, groups),
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    # Under a loss scale the distributed one is within.
    distributed = getattr(wrapped, "inner_optimizer", wrapped)
    for it in variables_of_layers(local_layers):
        distributed.register_local_var(it)
    return wrapped
