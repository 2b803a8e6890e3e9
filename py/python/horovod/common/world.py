"""What all frameworks' modules have under the same names, `init` and `shutdown` apart: process
functions, reductions and process sets.
"""

from horovod.common.basics import HorovodBasics
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

basics = HorovodBasics()

is_initialized = basics.is_initialized
start_timeline = basics.start_timeline
stop_timeline = basics.stop_timeline
size = basics.size
local_size = basics.local_size
cross_size = basics.cross_size
rank = basics.rank
local_rank = basics.local_rank
cross_rank = basics.cross_rank
is_homogeneous = basics.is_homogeneous
mpi_threads_supported = basics.mpi_threads_supported
mpi_enabled = basics.mpi_enabled
mpi_built = basics.mpi_built
gloo_enabled = basics.gloo_enabled
gloo_built = basics.gloo_built
nccl_built = basics.nccl_built
ddl_built = basics.ddl_built
ccl_built = basics.ccl_built
cuda_built = basics.cuda_built
rocm_built = basics.rocm_built

Average = basics.Average
Sum = basics.Sum
Adasum = basics.Adasum
Min = basics.Min
Max = basics.Max
Product = basics.Product

_REDUCTIONS = {Average: "average", Sum: "sum", Adasum: "adasum", Min: "min", Max: "max", Product: "product"}


def reduction(op: int, what: str) -> str:
    """The engine's word for a reduction; `ValueError` in the name of the operation `what` for
    anything else.
    """
    try:
        return _REDUCTIONS[op]
    except (KeyError, TypeError):
        raise ValueError(
            f"{what}: op is {op!r}; it is one of hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product"
        ) from None


__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "remove_process_set",
    "rocm_built",
    "size",
    "start_timeline",
    "stop_timeline",
]
