"""Horovod's interface for TensorFlow: collectives on tensors, tapes and optimizers that step on all
ranks' gradients.

Works eagerly, in `tf.function`, and in graphs and sessions of TensorFlow 1. Tensors are reduced in
the memory of the host; see docs/horovod-tensorflow.md.
"""

from horovod.common.util import check_extension, gpu_available

check_extension("horovod.tensorflow", "HOROVOD_WITH_TENSORFLOW", __file__, "mpi_lib")

from horovod._keras import keras2  # noqa: E402 (after the check that there is a TensorFlow)
from horovod.common import world  # noqa: E402
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt  # noqa: E402
from horovod.common.world import *  # noqa: E402, F403 (its `__all__`)
from horovod.tensorflow import elastic  # noqa: E402
from horovod.tensorflow.compression import Compression  # noqa: E402
from horovod.tensorflow.functions import allgather_object, broadcast_object, broadcast_object_fn, broadcast_variables  # noqa: E402
from horovod.tensorflow.gradients import _make_allreduce_grads_fn  # noqa: E402
from horovod.tensorflow.hooks import BroadcastGlobalVariablesHook, broadcast_global_variables  # noqa: E402
from horovod.tensorflow.mpi_ops import (  # noqa: E402
    _executing_eagerly,
    allgather,
    alltoall,
    broadcast,
    broadcast_,
    check_num_rank_power_of_2,
    grouped_allgather,
    handle_average_backwards_compatibility,
    init,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    shutdown,
    size_op,
)
from horovod.tensorflow.optimizer import DistributedOptimizer  # noqa: E402
from horovod.tensorflow.reductions import allreduce, grouped_allreduce, grouped_reducescatter, reducescatter  # noqa: E402
from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization  # noqa: E402
from horovod.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape  # noqa: E402

keras2.accept()

__all__ = [
    *world.__all__,
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "PartialDistributedGradientTape",
    "SyncBatchNormalization",
    "_executing_eagerly",
    "_make_allreduce_grads_fn",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "check_num_rank_power_of_2",
    "elastic",
    "gpu_available",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "handle_average_backwards_compatibility",
    "init",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "shutdown",
    "size_op",
]
