"""SageMaker's data parallel library for TensorFlow 2, version 1.x:
`import smdistributed.dataparallel.tensorflow as sdp`.

A thin layer over `horovod.tensorflow`, whose engine, tapes and optimizers it uses. `overlap` is the
identity: nothing here is compiled by XLA.
"""

from horovod.tensorflow import Compression
from smdistributed.dataparallel.tensorflow.collectives import (
    ReduceOp,
    allreduce,
    broadcast,
    broadcast_global_variables,
    broadcast_variables,
    init,
    is_initialized,
    local_rank,
    local_size,
    oob_allreduce,
    overlap,
    rank,
    shutdown,
    size,
)
from smdistributed.dataparallel.tensorflow.gradients import (
    BroadcastGlobalVariablesHook,
    DistributedGradientTape,
    DistributedOptimizer,
)

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "ReduceOp",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "oob_allreduce",
    "overlap",
    "rank",
    "shutdown",
    "size",
]
