"""Horovod's interface for TensorFlow: collectives on tensors, tapes and optimizers that step on all ranks' gradients.

Works eagerly, in `tf.function`, and in graphs and sessions of TensorFlow 1. Tensors are reduced in the memory of the host; see docs/horovod-tensorflow.md.
"""

from horovod.common.util import check_extension, gpu_available

check_extension("horovod.tensorflow", "HOROVOD_WITH_TENSORFLOW", __file__, "mpi_lib")

from horovod._keras import keras2  # noqa: E402 (after the check that there is a TensorFlow)
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt  # noqa: E402
from horovod.tensorflow import elastic  # noqa: E402
from horovod.tensorflow.compression import Compression  # noqa: E402
from horovod.tensorflow.functions import allgather_object, broadcast_object, broadcast_object_fn, broadcast_variables  # noqa: E402
from horovod.tensorflow.gradients import _make_allreduce_grads_fn  # noqa: E402
from horovod.tensorflow.hooks import BroadcastGlobalVariablesHook, broadcast_global_variables  # noqa: E402
from horovod.tensorflow.mpi_ops import (  # noqa: E402
    Adasum,
    Average,
    Max,
    Min,
    ProcessSet,
    Product,
    Sum,
    _executing_eagerly,
    add_process_set,
    allgather,
    alltoall,
    broadcast,
    broadcast_,
    ccl_built,
    check_num_rank_power_of_2,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    grouped_allgather,
    handle_average_backwards_compatibility,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_rank_op,
    local_size,
    local_size_op,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    process_set_included_op,
    rank,
    rank_op,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    size_op,
    start_timeline,
    stop_timeline,
)
from horovod.tensorflow.optimizer import DistributedOptimizer  # noqa: E402
from horovod.tensorflow.reductions import allreduce, grouped_allreduce, grouped_reducescatter, reducescatter  # noqa: E402
from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization  # noqa: E402
from horovod.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape  # noqa: E402

keras2.accept()

__all__ = [
    "Adasum",
    "Average",
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "_executing_eagerly",
    "_make_allreduce_grads_fn",
    "add_process_set",
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
    "ccl_built",
    "check_num_rank_power_of_2",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "handle_average_backwards_compatibility",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]
