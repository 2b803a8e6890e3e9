"""Horovod's interface for PyTorch: `import horovod.torch as hvd`.

CPU tensors go over Shoal's process groups, CUDA tensors over NCCL where each rank has a GPU of its
own, else through host memory.
"""

from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.common.util import check_extension
from horovod.common.world import *  # noqa: F403 (its `__all__`)
from horovod.torch import elastic
from horovod.torch.compression import Compression
from horovod.torch.functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from horovod.torch.mpi_ops import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    init,
    join,
    poll,
    reducescatter,
    reducescatter_async,
    shutdown,
    sparse_allreduce_async,
    synchronize,
)
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.sync_batch_norm import SyncBatchNorm

__all__ = [name for name in dir() if not name.startswith("_")]
