"""All operations of `horovod.torch`, where scripts import them from."""

from shoal.comm import CommError

from horovod.common import engine
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, identity, remove_process_set
from horovod.common.util import check_installed_version, gpu_available, num_rank_is_power_2
from horovod.torch import device, handles
from horovod.torch.compression import Compression
from horovod.torch.gathers import (
    HorovodAllgather,
    HorovodAlltoall,
    HorovodBroadcast,
    HorovodGroupedAllgather,
    allgather,
    allgather_async,
    alltoall,
    alltoall_async,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
)
from horovod.torch.handles import poll, synchronize
from horovod.torch.reductions import (
    HorovodAllreduce,
    HorovodGroupedAllreduce,
    HorovodGroupedReducescatter,
    HorovodReducescatter,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    handle_average_backwards_compatibility,
    reducescatter,
    reducescatter_async,
    sparse_allreduce_async,
)
from horovod.torch.submission import _basics, restart_numbers

is_initialized = _basics.is_initialized
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
size = _basics.size
local_size = _basics.local_size
cross_size = _basics.cross_size
rank = _basics.rank
local_rank = _basics.local_rank
cross_rank = _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built

Average = _basics.Average
Sum = _basics.Sum
Adasum = _basics.Adasum
Min = _basics.Min
Max = _basics.Max
Product = _basics.Product


def init(comm=None, process_sets=None) -> None:
    """Joins the world that the launcher has made; one rank of one without a launcher. A second call does nothing.

    comm: None for all ranks, a list of their numbers, or an mpi4py communicator. process_sets: sets to register, or "dynamic" to add them later.
    """
    _basics.init(comm, process_sets)
    device.find()


def shutdown() -> None:
    """Leaves the world. Operations that are not done fail on the ranks that wait for them."""
    _basics.shutdown()
    handles.forget()
    device.forget()


def join(device: int = -1) -> int:
    """Tells that this rank has no more data, and waits until all have: meanwhile it gives zeros to the others' all-reduces. The rank that joined last.
    `device` is accepted and not needed."""
    try:
        native = engine.current().submit("join", [], wait=True)
        native.wait()
    except CommError as error:
        raise engine.failed(error) from error
    # Ranks have done different numbers of unnamed operations; from here all do the same again.
    restart_numbers()
    return native.last_joined()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until all ranks of the set have come."""
    try:
        engine.current().submit("barrier", [], set=identity(process_set), wait=True).wait()
    except CommError as error:
        raise engine.failed(error) from error


__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "HorovodAllgather",
    "HorovodAllreduce",
    "HorovodAlltoall",
    "HorovodBroadcast",
    "HorovodGroupedAllgather",
    "HorovodGroupedAllreduce",
    "HorovodGroupedReducescatter",
    "HorovodInternalError",
    "HorovodReducescatter",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "ccl_built",
    "check_installed_version",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "handle_average_backwards_compatibility",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "num_rank_is_power_2",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]
