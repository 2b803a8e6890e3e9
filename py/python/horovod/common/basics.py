"""Process functions of all frameworks' modules: `init`, `rank`, `size` and so on."""

import os
import secrets
import socket
import sys
from collections.abc import Sequence

from horovod.common import engine
from horovod.common import process_sets as sets
from horovod.common.process_sets import ProcessSet

#: The variable that enables the timeline.
TIMELINE = "HOROVOD_TIMELINE"


class HorovodBasics:
    """The process functions. Those that need the world raise `ValueError` before `init`."""

    #: Reductions.
    Average, Sum, Adasum, Min, Max, Product = range(6)

    def __init__(self, pkg_path: str = "", *args: str):
        """Takes Horovod's arguments, which name a compiled extension, and ignores them."""

    def init(self, comm=None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
        """Joins the world. A second call does nothing.

        comm: None for all ranks that the launcher has started; a list of all their numbers; an
        mpi4py communicator, whose ranks then are the world. process_sets: sets to register, or
        "dynamic" to allow `add_process_set` later.
        """
        if not engine.start(_settings(comm)):
            return
        if isinstance(process_sets, str):
            if process_sets.lower() != "dynamic":
                engine.stop()
                raise ValueError(
                    f'process_sets is {process_sets!r}; it is a list of hvd.ProcessSet, None, or "dynamic"'
                )
            given, dynamic = [], True
        else:
            given, dynamic = list(process_sets or []), False
        try:
            if isinstance(comm, (list, tuple, range)) and len(comm) and sorted(comm) != list(range(self.size())):
                what = f"hvd.init(comm={list(comm)}): this world has the ranks 0 to {self.size() - 1}, and all of them take part"
                raise ValueError(
                    f"{what}; for fewer use hvd.init(process_sets=[hvd.ProcessSet({list(comm)})]), or an mpi4py communicator"
                )
            sets._init_process_sets(given, dynamic)
        except BaseException:
            self.shutdown()
            raise

    def shutdown(self) -> None:
        """Leaves the world, if this process is in one."""
        engine.stop()
        sets._forget()

    def is_initialized(self) -> bool:
        """Whether `init` was called, and `shutdown` was not."""
        return engine.started()

    def start_timeline(self, file_path: str, mark_cycles: bool = False) -> None:
        """Starts the timeline: rank 0 writes the operations' phases to a file in Chrome's trace
        format. `ValueError` unless HOROVOD_TIMELINE was set (DYNAMIC) before `init`.
        """
        it = engine.current()
        if not os.environ.get(TIMELINE):
            raise ValueError("Set HOROVOD_TIMELINE=DYNAMIC to enable dynamic timeline usage.")
        it.timeline_start(str(file_path), bool(mark_cycles))

    def stop_timeline(self) -> None:
        """Completes the timeline's file, if there is one."""
        engine.current().timeline_stop()

    def size(self) -> int:
        """Number of ranks."""
        return engine.current().size

    def local_size(self) -> int:
        """Number of ranks on this host."""
        return engine.current().local_size

    def cross_size(self) -> int:
        """Number of hosts that have this local rank."""
        return engine.current().cross_size

    def rank(self) -> int:
        """This process's rank, from 0."""
        return engine.current().rank

    def local_rank(self) -> int:
        """This process's rank on its host, from 0."""
        return engine.current().local_rank

    def cross_rank(self) -> int:
        """The number of this process's host among those that have its local rank, from 0."""
        return engine.current().cross_rank

    def is_homogeneous(self) -> bool:
        """Whether all hosts have the same number of ranks."""
        it = engine.current()
        return it.local_size * it.cross_size == it.size

    def mpi_threads_supported(self) -> bool:
        """True: no MPI is used for operations, so mpi4py may be used beside them from any
        thread.
        """
        engine.current()
        return True

    def mpi_enabled(self) -> bool:
        """Whether an MPI launcher has started this program."""
        return (
            any(name in os.environ for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"))
            and not self.gloo_enabled()
        )

    def mpi_built(self) -> bool:
        """True: MPI launchers may start programs."""
        return True

    def gloo_enabled(self) -> bool:
        """Whether this program was started without MPI, as by `horovodrun`."""
        return "HOROVOD_RANK" in os.environ or not any(
            name in os.environ for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
        )

    def gloo_built(self) -> bool:
        """True: `horovodrun --gloo` may start programs."""
        return True

    def nccl_built(self) -> int:
        """NCCL's version code, such as 22703 for 2.27.3, where this program's PyTorch has it;
        else 0.
        """
        torch = sys.modules.get("torch")
        if (
            torch is None
            or torch.version.cuda is None
            or not torch.distributed.is_available()
            or not torch.distributed.is_nccl_available()
        ):
            return 0
        major, minor, patch = (*torch.cuda.nccl.version(), 0, 0)[:3]
        return major * 10000 + minor * 100 + patch

    def ddl_built(self) -> bool:
        """False: IBM's library is not used."""
        return False

    def ccl_built(self) -> bool:
        """False: oneCCL is not used."""
        return False

    def cuda_built(self) -> bool:
        """Whether this program's PyTorch was built with CUDA."""
        torch = sys.modules.get("torch")
        return torch is not None and torch.version.cuda is not None

    def rocm_built(self) -> bool:
        """Whether this program's PyTorch was built with ROCm."""
        torch = sys.modules.get("torch")
        return torch is not None and torch.version.hip is not None


def _settings(comm) -> dict[str, str] | None:
    """Settings of a communicator's world; None where the environment has them."""
    if comm is None or isinstance(comm, (list, tuple, range)):
        return None
    if not (hasattr(comm, "Get_rank") and hasattr(comm, "bcast")):
        raise ValueError(
            f"Invalid type of argument comm. Expected list of rank integers or mpi4py.MPI.Comm object, not {type(comm).__name__}."
        )
    meeting = None
    if comm.Get_rank() == 0:
        with socket.socket() as it:
            it.bind(("", 0))
            secret = os.environ.get("SHOAL_COMM_SECRET") or secrets.token_hex(16)
            meeting = socket.gethostbyname(socket.gethostname()), it.getsockname()[1], secret
    address, port, secret = comm.bcast(meeting, root=0)
    # These variables win over those of any launcher.
    place = {"HOROVOD_RANK": str(comm.Get_rank()), "HOROVOD_SIZE": str(comm.Get_size())}
    meeting_place = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": address, "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port)}
    return {**place, **meeting_place, "SHOAL_COMM_SECRET": secret}
