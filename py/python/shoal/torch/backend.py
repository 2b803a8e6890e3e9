"""The backend `shoal` of `torch.distributed`."""

import atexit
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, BarrierOptions

from shoal.comm import ConfigError, Group, Operation
from shoal.torch import reform
from shoal.torch.collectives import Collectives

_open: "weakref.WeakSet[ShoalBackend]" = weakref.WeakSet()


class ShoalBackend(Collectives, Backend):
    """A process group of Shoal's as torch's C++ half and Python half call it."""

    def __init__(self, group: Group, timeout: timedelta):
        super().__init__(group.rank, group.size)
        self._group = group
        self._timeout = timeout
        self._beside: tuple[Group, ThreadPoolExecutor] | None = None
        _open.add(self)

    def getBackendName(self) -> str:  # noqa: N802 (torch's name)
        """How torch calls it."""
        return "shoal"

    def name(self) -> str:
        """How torch calls it."""
        return "shoal"

    # torch's own defaults of these ask themselves without end.
    supports_splitting = property(lambda self: False)
    supports_coalescing = property(lambda self: False)
    supports_shrinking = property(lambda self: False)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)
    supports_abort_hooks = property(lambda self: False)
    _supports_time_estimate = property(lambda self: False)

    @property
    def native(self) -> Group:
        """The group itself."""
        return self._group

    @property
    def timeout(self) -> timedelta:
        """How long an operation may take that names no limit of its own."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """How long an operation may take from now on that names no limit of its own."""
        self._timeout = timeout

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def monitored_barrier(self, opts: BarrierOptions, wait_all_ranks: bool = False) -> None:
        """A barrier whose error names the ranks that have not come: as every operation's does."""
        self._run(Operation("barrier", deadline=self._deadline(opts)))

    def beside(self) -> tuple[Group, ThreadPoolExecutor]:
        """A group of the same ranks whose operations have an order of their own, and the thread that does them; all ranks call this the first time at the same
        place in the order of this group's operations."""
        if self._beside is None:
            part = self._group.split(list(range(self._group.size)))
            self._beside = part, ThreadPoolExecutor(1, "shoal-beside")
        return self._beside

    def shutdown(self) -> None:
        """Leaves the group."""
        if self._beside is not None:
            group, thread = self._beside
            thread.shutdown()
            group.close()
        self._group.close()

    abort = shutdown


def create(options: dist.distributed_c10d._DistributedBackendOptions, _of_backend: object) -> ShoalBackend:
    """What torch calls for `init_process_group("shoal")` and `new_group`: the ranks meet in torch's store."""
    timeout: timedelta = options.timeout
    seconds = str(timeout.total_seconds())
    if timeout <= timedelta(0):
        raise ConfigError(f"init_process_group: a timeout of {timeout} is none; give at least a second")
    is_default = not options.global_ranks_in_group
    if is_default and reform.formed is not None:
        formed, reform.formed = reform.formed, None
        return ShoalBackend(formed, timeout)
    settings = {
        "RANK": str(options.group_rank),
        "WORLD_SIZE": str(options.group_size),
        "SHOAL_COMM_DEADLINE": seconds,
        "SHOAL_COMM_PATIENCE": seconds,
    }
    store = options.store
    if is_default:
        reform.meeting = None
    else:
        # Who replaces a lost rank does so in the default group, and its other groups are new.
        settings["SHOAL_COMM_REPLACES"] = "0"
        store = store if reform.meeting is None else dist.PrefixStore(options.group_id, reform.meeting)
    group = Group.join(settings, store, _place(store), _server(store))
    if is_default and group.epoch > 0:
        # The others of the group call the same in `rejoin`.
        reform.meeting = reform.meet(group, timeout)
    return ShoalBackend(group, timeout)


def _place(store: dist.Store) -> str:
    """Where torch's store is, for messages."""
    server = _server(store)
    return f"torch's {type(_itself(store)).__name__}" + (f" at {server}" if server else "")


def _server(store: dist.Store) -> str:
    """`HOST:PORT` of a store that has a server, else nothing."""
    store = _itself(store)
    return f"{store.host}:{store.port}" if isinstance(store, dist.TCPStore) else ""


def _itself(store: dist.Store) -> dist.Store:
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store


@atexit.register
def _leave() -> None:
    """Programs that end without `destroy_process_group` take leave of the other ranks, too."""
    for backend in list(_open):
        backend.shutdown()


def is_ours(group: dist.ProcessGroup) -> bool:
    """Whether it is of this backend."""
    return isinstance(group._get_backend(torch.device("cpu")), ShoalBackend)


def empty(*shape: int, dtype: torch.dtype | None = None, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """A tensor in the group's registered memory, where the ranks of a host reduce and gather without a copy; zeros at first. All ranks of the group
    call this in the same order with the same size."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    count = torch.Size(shape).numel()
    memory = of(group).native.alloc(max(count * dtype.itemsize, 1))
    return torch.from_dlpack(memory)[: count * dtype.itemsize].view(dtype).view(shape)


def of(group: dist.ProcessGroup | None = None) -> ShoalBackend:
    """The backend of a process group (the default one if not said)."""
    group = dist.group.WORLD if group is None else group
    backend = None if group is None else group._get_backend(torch.device("cpu"))
    if not isinstance(backend, ShoalBackend):
        raise ConfigError("this is no process group of backend shoal: call torch.distributed.init_process_group('shoal') first")
    return backend
