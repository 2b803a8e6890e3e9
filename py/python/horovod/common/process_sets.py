"""Sets of ranks that do operations among themselves."""

from collections.abc import Sequence

from horovod.common import engine


class ProcessSet:
    """Some ranks of the world, by their numbers there, or those of an mpi4py communicator.
    `init(process_sets=..)` or `add_process_set` registers it, and gives it its `process_set_id`.
    Ranks outside of it must not call operations with it.
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None

    def __init__(self, ranks_or_comm: Sequence[int]):
        self.process_set_id = None
        self.ranks = None
        self._comm = None
        if hasattr(ranks_or_comm, "Get_rank") and hasattr(ranks_or_comm, "allgather"):
            self._comm = ranks_or_comm
            return
        try:
            self.ranks = sorted({int(rank) for rank in ranks_or_comm})
        except (TypeError, ValueError):
            what = "ProcessSet should be initialized with a list of process ranks or an mpi4py Comm object"
            raise ValueError(f"{what}, not {ranks_or_comm!r}") from None

    def _invalidate(self) -> None:
        self.process_set_id = None

    def size(self) -> int | None:
        """How many ranks it has; None before it is registered."""
        if self.process_set_id is None:
            return None
        return _size(self)

    def rank(self) -> int | None:
        """This process's number within the set, from 0; None before it is registered.
        `ValueError` if it is not in the set.
        """
        if self.process_set_id is None:
            return None
        own, ranks = engine.current().rank, members(self)
        if own not in ranks:
            raise ValueError(f"Process is not part of provided process set: rank {own} is not among {ranks}.")
        return ranks.index(own)

    def included(self) -> bool | None:
        """Whether this process is in the set; None before it is registered."""
        if self.process_set_id is None:
            return None
        return self.process_set_id == 0 or engine.current().rank in members(self)

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}" + (
            f", mpi_comm={self._comm})" if self._comm else ")"
        )

    __str__ = __repr__


#: All ranks.
global_process_set = ProcessSet([])
global_process_set.process_set_id = 0
global_process_set.ranks = None

_registered: dict[int, ProcessSet] = {}
#: Whether sets may be added after `init`.
_dynamic = False


def members(process_set: ProcessSet) -> list[int]:
    """The set's ranks; `ValueError` if it is not registered."""
    if process_set.process_set_id == 0:
        return list(range(engine.current().size))
    identity(process_set)
    return process_set.ranks


def _size(process_set: ProcessSet) -> int:
    if process_set.process_set_id == 0:
        return engine.current().size
    return len(members(process_set))


def identity(process_set: ProcessSet) -> int:
    """The set's number in the engine; `ValueError` if it is not registered."""
    number = process_set.process_set_id
    if number == 0:
        return 0
    if number is None or number not in _registered:
        raise ValueError(
            f"Process set does not exist or has not been registered: {process_set}. Give it to hvd.init or hvd.add_process_set."
        )
    return number


def _ranks(process_set: ProcessSet) -> list[int]:
    size = engine.current().size
    if process_set.ranks is None:
        process_set.ranks = sorted(process_set._comm.allgather(engine.current().rank))
    beyond = [rank for rank in process_set.ranks if not 0 <= rank < size]
    if beyond or not process_set.ranks:
        raise ValueError(
            f"{process_set}: a process set has at least one rank, each of 0 to {size - 1}; it has {beyond or 'none'}"
        )
    return process_set.ranks


def _same(ranks: list[int]) -> bool:
    world = list(range(engine.current().size))
    return ranks == world or any(ranks == other.ranks for other in _registered.values())


def _register(process_set: ProcessSet) -> ProcessSet:
    number = engine.current().add_set(process_set.ranks)
    process_set.process_set_id = number
    _registered[number] = process_set
    return process_set


def _init_process_sets(process_sets: Sequence[ProcessSet], dynamic: bool) -> None:
    """Registers the sets given to `init`."""
    global _dynamic
    _dynamic = dynamic
    global_process_set.ranks = list(range(engine.current().size))
    for number, it in enumerate(process_sets):
        if _same(_ranks(it)):
            raise ValueError(
                f"Horovod could not be initialized because process_sets entry number {number} is a duplicate: {it}"
            )
        _register(it)


def _forget() -> None:
    """Unregisters all sets, after the engine's end."""
    for it in _registered.values():
        it._invalidate()
    _registered.clear()
    global_process_set.ranks = None


def _changeable(what: str) -> None:
    engine.current()
    if not (_dynamic or engine.flag("HOROVOD_DYNAMIC_PROCESS_SETS")):
        raise ValueError(
            f"Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow {what} process sets after Horovod initialization, or call hvd.init(process_sets='dynamic')."
        )


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Registers a set, which must not be registered already; all ranks of the world call this
    with the same sets in the same order. Needs HOROVOD_DYNAMIC_PROCESS_SETS=1 or
    `init(process_sets="dynamic")`.
    """
    _changeable("adding")
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if _same(_ranks(process_set)):
        raise ValueError(f"Attempted to add a duplicate process set: {process_set}")
    return _register(process_set)


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forgets a set, on all ranks of the world; False if it is not registered or the global one."""
    _changeable("removing")
    number = process_set.process_set_id
    if number is None or number == 0 or number not in _registered:
        return False
    engine.current().remove_set(number)
    del _registered[number]
    process_set._invalidate()
    return True
