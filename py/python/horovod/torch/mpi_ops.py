"""All operations of `horovod.torch`, where scripts import them from."""

from shoal.comm import CommError

from horovod.common import engine, world
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set, identity
from horovod.common.util import check_installed_version, gpu_available, num_rank_is_power_2
from horovod.common.world import *  # noqa: F403 (its `__all__`)
from horovod.common.world import basics as _basics
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
from horovod.torch.submission import restart_numbers


def init(comm=None, process_sets=None) -> None:
    """Joins the world that the launcher has made; one rank of one without a launcher. A second call
    does nothing.

    comm: None for all ranks, a list of their numbers, or an mpi4py communicator. process_sets: sets
    to register, or "dynamic" to add them later.
    """
    _basics.init(comm, process_sets)
    device.find()


def shutdown() -> None:
    """Leaves the world. Operations that are not done fail on the ranks that wait for them."""
    _basics.shutdown()
    handles.forget()
    device.forget()


def join(device: int = -1) -> int:
    """Says that this rank has no more data, and waits until all ranks have joined; meanwhile it
    gives zeros to the others' all-reduces. Returns the rank that joined last. `device` is
    ignored.
    """
    try:
        native = engine.current().submit("join", [], wait=True)
        native.wait()
    except CommError as error:
        raise engine.failed(error) from error
    # Ranks have done different numbers of unnamed operations; from here all do the same again.
    restart_numbers()
    return native.last_joined()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until all ranks of the set have called it."""
    try:
        engine.current().submit("barrier", [], set=identity(process_set), wait=True).wait()
    except CommError as error:
        raise engine.failed(error) from error


__all__ = [
    *world.__all__,
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
    "check_installed_version",
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
    "join",
    "num_rank_is_power_2",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "shutdown",
    "sparse_allreduce_async",
    "synchronize",
]
