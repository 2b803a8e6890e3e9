"""The backend `shoal` of `torch.distributed`."""

import atexit
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, BarrierOptions

from shoal.comm import ConfigError, Group, Operation
from shoal.torch.collectives import Collectives

_open: "weakref.WeakSet[ShoalBackend]" = weakref.WeakSet()


class ShoalBackend(Collectives, Backend):
    """A process group of Shoal's as torch's C++ half and Python half call it."""

    def __init__(self, group: Group, timeout: timedelta):
        super().__init__(group.rank, group.size)
        self._group = group
        self._timeout = timeout
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

    def set_timeout(self, timeout: timedelta) -> None:
        """How long an operation may take from now on that names no limit of its own."""
        self._timeout = timeout

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def monitored_barrier(self, opts: BarrierOptions, wait_all_ranks: bool = False) -> None:
        """A barrier whose error names the ranks that have not come: as every operation's does."""
        self._run(Operation("barrier", deadline=self._deadline(opts)))

    def shutdown(self) -> None:
        """Leaves the group."""
        self._group.close()

    abort = shutdown


def create(options: dist.distributed_c10d._DistributedBackendOptions, _of_backend: object) -> ShoalBackend:
    """What torch calls for `init_process_group("shoal")` and `new_group`: the ranks meet in torch's store."""
    timeout: timedelta = options.timeout
    seconds = str(timeout.total_seconds())
    settings = {
        "RANK": str(options.group_rank),
        "WORLD_SIZE": str(options.group_size),
        "SHOAL_COMM_DEADLINE": seconds,
        "SHOAL_COMM_PATIENCE": seconds,
    }
    if timeout <= timedelta(0):
        raise ConfigError(f"init_process_group: a timeout of {timeout} is none; give at least a second")
    group = Group.join(settings, options.store, _place(options.store))
    return ShoalBackend(group, timeout)


def _place(store: dist.Store) -> str:
    """Where torch's store is, for messages."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    where = f" at {store.host}:{store.port}" if isinstance(store, dist.TCPStore) else ""
    return f"torch's {type(store).__name__}{where}"


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
