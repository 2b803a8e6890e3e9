"""The backend `shoal` of `torch.distributed`."""

import atexit
import hashlib
import os
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, BarrierOptions

from shoal.comm import CommError, ConfigError, DeadlineExceeded, Group, Operation
from shoal.torch import reform
from shoal.torch.collectives import Collectives
from shoal.torch.reach import reaches

_open: "weakref.WeakSet[ShoalBackend]" = weakref.WeakSet()
#: The backend of each process group of torch's. Under TORCH_DISTRIBUTED_DEBUG=DETAIL torch wraps
#: the C++ half of a backend and drops its Python half.
_of_groups: "weakref.WeakKeyDictionary[dist.ProcessGroup, ShoalBackend]" = weakref.WeakKeyDictionary()

#: How much longer than rank 0 the others wait in a monitored barrier.
REPORT_S = 2.0


class ShoalBackend(Collectives, Backend):
    """A process group of Shoal's as torch's C++ half and Python half call it."""

    def __init__(self, group: Group, timeout: timedelta):
        try:
            super().__init__(group.rank, group.size)
        except TypeError as error:
            raise ConfigError(
                f"torch {torch.__version__} has no backends in Python: backend 'shoal' needs torch 2.14 or newer. "
                "With this one, use nccl or gloo, or Horovod's functions (horovod.torch)"
            ) from error
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

    @property
    def options(self) -> Backend.Options:
        """What torch copies for a group that is split off."""
        return Backend.Options("shoal", self._timeout)

    def _get_sequence_number_for_group(self) -> int:
        """How many collectives this rank has called: the same on all ranks that agree."""
        return self._collectives

    def _set_sequence_number_for_group(self) -> None:
        """Numbers begin at 0 on every rank."""

    # torch's own defaults of these call themselves without end.
    supports_splitting = property(lambda self: True)
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
        """A barrier whose error on rank 0 names the first rank that did not come, or all with
        `wait_all_ranks`, in the words of torch's Gloo backend. A timeout of 0 has run out when
        rank 0 calls.
        """
        rank = self._group.rank
        if rank == 0 and opts.timeout == timedelta(0):
            raise _timed_out("Rank 0 timed out in monitoredBarrier after 0 ms: give a timeout above 0, or none")
        seconds = self._deadline(opts)
        # Rank 0 reports: the others wait for its report, and not only as long as it does.
        deadline = seconds if rank == 0 else seconds + REPORT_S
        try:
            self._run(Operation("barrier", deadline=deadline))
        except DeadlineExceeded as error:
            raise _not_passed(error, rank, seconds, wait_all_ranks) from error
        except CommError as error:
            if rank == 0 or isinstance(error, ConfigError):
                raise
            raise _same(error, _reached(rank, error)) from error

    def split(self, store: dist.Store, ranks: Sequence[int], opts: Backend.Options) -> "ShoalBackend | None":
        """A group of some of the ranks, which meet in `store`; none for a rank that is not of
        them.
        """
        if self._group.rank not in ranks:
            return None
        timeout = opts._timeout if opts is not None else self._timeout
        return ShoalBackend(
            _join(ranks.index(self._group.rank), ranks, store, timeout, {"SHOAL_COMM_REPLACES": "0"}), timeout
        )

    def beside(self) -> tuple[Group, ThreadPoolExecutor]:
        """A group of the same ranks whose operations have an order of their own, and the thread
        that does them; all ranks call this the first time at the same place in the order of this
        group's operations.
        """
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


def _same(error: CommError, text: str) -> CommError:
    """An error of the same kind and about the same ranks, with another text."""
    new = type(error)(text)
    new.operation, new.number, new.ranks = error.operation, error.number, error.ranks
    return new


def _timed_out(text: str) -> DeadlineExceeded:
    error = DeadlineExceeded(text)
    error.operation, error.number, error.ranks = "barrier", None, []
    return error


def _reached(rank: int, error: CommError) -> str:
    return f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0: {error}"


def _not_passed(error: DeadlineExceeded, rank: int, seconds: float, wait_all_ranks: bool) -> DeadlineExceeded:
    if rank != 0:
        return _same(error, _reached(rank, error))
    missing = error.ranks if wait_all_ranks else error.ranks[:1]
    names = ", ".join(str(it) for it in missing)
    who = f"Rank {names}" if len(missing) == 1 else f"Ranks {names}"
    return _same(error, f"{who} failed to pass monitoredBarrier in {seconds * 1000:.0f} ms: {error}")


def create(options: dist.distributed_c10d._DistributedBackendOptions, _of_backend: object) -> ShoalBackend:
    """What torch calls for `init_process_group("shoal")` and `new_group`: the ranks meet in
    torch's store.
    """
    backend = _create(options)
    group = getattr(options, "process_group", None)
    if group is not None:
        _of_groups[group] = backend
    return backend


def _create(options: dist.distributed_c10d._DistributedBackendOptions) -> ShoalBackend:
    timeout: timedelta = options.timeout
    if timeout <= timedelta(0):
        raise ConfigError(f"init_process_group: a timeout of {timeout} is not positive; give at least a second")
    is_default = not options.global_ranks_in_group
    if is_default and reform.formed is not None:
        formed, reform.formed = reform.formed, None
        return ShoalBackend(formed, timeout)
    store = options.store
    if is_default:
        reform.meeting = None
        group = _join(options.group_rank, range(options.group_size), store, timeout, {})
    else:
        store = store if reform.meeting is None else dist.PrefixStore(options.group_id, reform.meeting)
        # A process that replaces a lost rank does so in the default group, and its other groups are
        # new.
        group = _join(options.group_rank, options.global_ranks_in_group, store, timeout, {"SHOAL_COMM_REPLACES": "0"})
    if is_default and group.epoch > 0:
        # The others of the group call the same in `rejoin`.
        reform.meeting = reform.meet(group, timeout)
    return ShoalBackend(group, timeout)


def _join(rank: int, members: Sequence[int], store: dist.Store, timeout: timedelta, settings: dict[str, str]) -> Group:
    """The group of these members, named by their numbers in the group around it, of which this
    process is number `rank`.
    """
    seconds = str(timeout.total_seconds())
    settings = {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(members)),
        "SHOAL_COMM_DEADLINE": seconds,
        "SHOAL_COMM_PATIENCE": seconds,
        **settings,
    }
    if len(members) == 1 and settings.get("SHOAL_COMM_REPLACES") == "0":
        # Nobody else is to be found.
        return Group.join(settings, dist.HashStore(), "a store of this process", "")
    return Group.join(settings, dist.PrefixStore(_meeting(members), store), _place(store), _server(store))


def _meeting(members: Sequence[int]) -> str:
    """Where in a store these ranks meet. Groups of other ranks may have the same name, and
    torchrun's store outlives the ranks that it restarts.
    """
    ranks = hashlib.sha256(repr(list(members)).encode()).hexdigest()[:16]
    return f"shoal/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{ranks}"


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
    """Whether its operations on CPU tensors are this backend's."""
    return group in _of_groups or isinstance(_on_cpu(group), ShoalBackend)


def _on_cpu(group: dist.ProcessGroup) -> Backend | None:
    """The backend for CPU tensors; a group of NCCL alone has none, and torch raises for it."""
    cpu = torch.device("cpu")
    return group._get_backend(cpu) if reaches(group, cpu) else None


def empty(*shape: int, dtype: torch.dtype | None = None, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """A tensor in the group's registered memory, where the ranks of a host reduce and gather
    without a copy; zeros at first. All ranks of the group call this in the same order with the
    same size.
    """
    dtype = torch.get_default_dtype() if dtype is None else dtype
    count = torch.Size(shape).numel()
    memory = of(group).native.alloc(max(count * dtype.itemsize, 1))
    return torch.from_dlpack(memory)[: count * dtype.itemsize].view(dtype).view(shape)


def of(group: dist.ProcessGroup | None = None) -> ShoalBackend:
    """The backend of a process group (the default one if not said)."""
    group = dist.group.WORLD if group is None else group
    backend = None if group is None else _of_groups.get(group) or _on_cpu(group)
    if not isinstance(backend, ShoalBackend):
        raise ConfigError(
            "this is no process group of backend shoal: call torch.distributed.init_process_group('shoal') first"
        )
    return backend
