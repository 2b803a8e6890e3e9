"""Collectives by name: ranks submit operations in any order, and each is done once all ranks have
submitted it.

Operations are negotiated, fused and reduced by a native engine; this module finds the rank's place
and hands over addresses. The engine uses no core while no operation is outstanding.

    engine = shoal.named.start()
    handle = engine.submit("allreduce", [("weights", address, address, (1000,), "f32")], op="average", keep=tensor)
    handle.wait()
"""

import atexit
import os
import stat
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path

from shoal._native import DuplicateName, Mismatch, NamedEngine, NamedError, NamedHandle, ShutDown
from shoal.comm import ConfigError, Group

__all__ = ["DuplicateName", "Mismatch", "NamedEngine", "NamedError", "NamedHandle", "ShutDown", "place", "start"]

_open: "weakref.WeakSet[NamedEngine]" = weakref.WeakSet()
#: Number of engines that this process has started in each world.
_starts: dict[int, int] = {}
#: Starts that a world has room for.
STARTS = 1 << 20
_lock = threading.Lock()


def start(settings: Mapping[str, str] | None = None, group: Group | None = None) -> NamedEngine:
    """Joins the world that the environment describes (`place`) and starts an engine in it;
    `settings` override the environment by its names. With `group` the world is that group, which
    belongs to the engine from then on. All ranks call this; it blocks until they have come.

    Raises what `shoal.comm.Group.join` raises: `RendezvousError`, `ConfigError`, ...
    """
    table = {**os.environ, **(settings or {})}
    # Ranks that came later have not started as often: an elastic launcher numbers the worlds, and
    # starts are counted in each.
    world = int(table.get("SHOAL_NAMED_WORLD") or 0)
    with _lock:
        count = _starts.get(world, 0)
        _starts[world] = count + 1
    number = world * STARTS + count
    engine = NamedEngine.start({**table, **place(table)}, number, group)
    _open.add(engine)
    return engine


def place(environment: Mapping[str, str]) -> dict[str, str]:
    """This rank's place according to `environment`, as RANK, WORLD_SIZE, LOCAL_RANK,
    LOCAL_WORLD_SIZE, CROSS_RANK, CROSS_SIZE, MASTER_ADDR, MASTER_PORT or SHOAL_COMM_DIRECTORY, as
    far as they are known; without RANK and WORLD_SIZE it is one rank of one. The first of these
    applies: horovodrun's variables, those of MPI, RANK and WORLD_SIZE, the instances of a training
    job.

    Under torchrun MASTER_PORT is torchrun's own: the ranks of one host meet in a directory, those
    of several at the port after it.
    """
    for find in (_of_horovodrun, _of_mpi, _of_launcher):
        found = find(environment)
        if found is not None:
            return found
    return {}


_HOROVODRUN = {
    "RANK": "HOROVOD_RANK",
    "WORLD_SIZE": "HOROVOD_SIZE",
    "LOCAL_RANK": "HOROVOD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "HOROVOD_LOCAL_SIZE",
    "CROSS_RANK": "HOROVOD_CROSS_RANK",
    "CROSS_SIZE": "HOROVOD_CROSS_SIZE",
}


def _of_horovodrun(environment: Mapping[str, str]) -> dict[str, str] | None:
    if not (environment.get("HOROVOD_RANK") and environment.get("HOROVOD_SIZE")):
        return None
    found = {ours: environment[theirs] for ours, theirs in _HOROVODRUN.items() if environment.get(theirs)}
    if environment.get("HOROVOD_GLOO_RENDEZVOUS_ADDR") and environment.get("HOROVOD_GLOO_RENDEZVOUS_PORT"):
        found["MASTER_ADDR"] = environment["HOROVOD_GLOO_RENDEZVOUS_ADDR"]
        found["MASTER_PORT"] = environment["HOROVOD_GLOO_RENDEZVOUS_PORT"]
    return found


#: Rank, size, rank on the host, ranks of the host, as Open MPI and as MPICH, Intel MPI and Slurm's
#: PMI call them.
_MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
#: Variables that differ between runs of mpirun.
_MPI_JOB = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")


def _of_mpi(environment: Mapping[str, str]) -> dict[str, str] | None:
    for rank, size, local_rank, local_size in _MPI:
        if not (environment.get(rank) and environment.get(size)):
            continue
        names = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": local_size}
        found = {ours: environment[theirs] for ours, theirs in names.items() if environment.get(theirs)}
        if not (environment.get("MASTER_ADDR") and environment.get("MASTER_PORT")) and not environment.get(
            "SHOAL_COMM_DIRECTORY"
        ):
            # All ranks are on this host, or they do not find each other, and say so.
            job = next((environment[it] for it in _MPI_JOB if environment.get(it)), _parent())
            name = "".join(it if it.isalnum() else "-" for it in job)
            found["SHOAL_COMM_DIRECTORY"] = _own_directory(f"/tmp/shoal-mpi-{os.getuid()}-{name}")
        return found
    return None


def _of_launcher(environment: Mapping[str, str]) -> dict[str, str] | None:
    if not (environment.get("RANK") and environment.get("WORLD_SIZE")):
        return None
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or environment.get("SHOAL_COMM_DIRECTORY"):
        return {}
    if environment.get("LOCAL_WORLD_SIZE") == environment["WORLD_SIZE"]:
        restarts = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        return {"SHOAL_COMM_DIRECTORY": _own_directory(f"/tmp/shoal-torchrun-{os.getuid()}-{_parent()}-{restarts}")}
    return {"MASTER_PORT": str(int(environment.get("MASTER_PORT", "0")) + 1)}


def _own_directory(path: str) -> str:
    """Makes the directory, or checks that no other user can write there, who could pose as a
    rank.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise ConfigError(
                f"{path}: the ranks were to meet there, but it is not a directory of this user alone; set SHOAL_COMM_DIRECTORY"
            ) from None
    return path


def _parent() -> str:
    """A name of the parent process that is unique on this host at all times: its number and
    start time.
    """
    number = os.getppid()
    try:
        begun = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        begun = "0"
    return f"{number}-{begun}"


@atexit.register
def _leave() -> None:
    """Leaves the world when a program ends without a shutdown."""
    for engine in list(_open):
        engine.shutdown()
