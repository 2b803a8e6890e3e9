"""Large batch simulation with Keras."""

from __future__ import annotations

from typing import Any

__all__ = ["LargeBatch"]


def LargeBatch(  # noqa: N802 (it stands where a class does in PyTorch)
    optimizer: Any,
    simulate: int,
    *,
    compression: Any = None,
    gradient_predivide_factor: float = 1.0,
    process_set: Any = None,
) -> Any:
    """The optimizer, on these ranks as on `simulate` workers: it steps in every (simulate /
    ranks)-th pass, on the mean of all workers' gradients.

    `iterations`, and so every learning rate schedule and Adam's correction of bias, count steps,
    not passes. Clipping, weight decay and moving averages act on the whole step. Sparse gradients
    are made dense. Under a `LossScaleOptimizer`, one pass of any rank that is not finite skips the
    step on all ranks, and the scale changes between steps only. Batch statistics are those of each
    pass' own batch, and moving ones are updated in every pass. Raises `shoal.parallel.Invalid`
    where the ranks do not divide `simulate`, with the nearest that they do. Joins the world if
    `hvd.init()` was not called.
    """
    import horovod._keras as keras
    from horovod._keras import simulate as simulation
    from horovod.tensorflow import Average, Compression, init, is_initialized

    if not is_initialized():
        init()
    passes = simulation.passes_for(simulate)
    return keras.create_distributed_optimizer(
        optimizer=optimizer,
        name=None,
        compression=compression or Compression.none,
        sparse_as_dense=passes > 1,
        gradient_predivide_factor=gradient_predivide_factor,
        op=Average,
        backward_passes_per_step=passes,
        average_aggregated_gradients=True,
        process_set=process_set,
        count_passes=False,
        ask_environment=False,
    )
