"""A parameter server: named tensors of float32 that workers push to and pull from, each at its own
pace or all in step.

In a training job of several instances with `distribution={"parameter_server": {"enabled": True}}`,
every instance's script is a worker and has a part of the tensors, and nothing is to be set:

    with ParameterServer({"weights": (784, 10), "bias": 10}) as server:
        for step in range(steps):
            weights = numpy.asarray(server.pull("weights"))
            server.push("weights", -rate / server.size * gradient(weights))
            server.advance()

Elsewhere it is started on the ranks of `MASTER_ADDR`, `MASTER_PORT`, `RANK` and `WORLD_SIZE`, which
meet once in a process, or on a `shoal.comm.Group`.
"""

import ctypes
import math
import operator
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from shoal import _native
from shoal.comm import CommError, ConfigError, Group, PeerGaveUp

__all__ = ["Advanced", "ParameterServer"]

#: Bytes of a float32.
_ITEM = 4

#: The group of the environment's ranks, and the process that has joined it.
_joined: tuple[int, Group] | None = None


class Advanced(NamedTuple):
    """What a worker hears when its clock has gone on."""

    #: How often this worker has advanced.
    clock: int
    #: Ranks of workers that were lost since the start; nobody waits for them. Empty unless they are
    #: tolerated.
    lost: list[int]


class ParameterServer:
    """This rank's part in a parameter server; all ranks make one, with the same arguments, and use
    it in a `with` statement.

    The tensors lie in one flat space that is cut into equal parts, one for each server. A worker
    that has ended is waited for no more: let all do the same number of steps. Where the `with`
    statement ends in an exception, this worker is lost to the others; the part of a server is there
    until its process ends. From a lost part nothing is to be had: start anew from what a worker has
    saved.

    Errors are those of `shoal.comm`: `ConfigError` for a mistake of the caller, `PeerDied` with the
    rank of a server that is gone, `PeerGaveUp` with those of lost workers.
    """

    def __init__(
        self,
        tensors: Mapping[str, int | Sequence[int]],
        *,
        servers: Iterable[int] | None = None,
        workers: Iterable[int] | None = None,
        consistency: str | int = "synchronous",
        patience: float = 300.0,
        tolerates_loss: bool = False,
        group: Group | None = None,
    ):
        """Waits until all ranks have come.

        `tensors`: shape of each, by name; they begin as zeros. `servers`, `workers`: which ranks
        have a part, and which push and pull; all. `consistency`: `"synchronous"`: in step; what is
        pushed counts when all have advanced, in the order of the ranks: the same bits in every run.
        A number: a worker may be so many steps ahead of the slowest (0: none), and what is pushed
        counts at once. `"unbounded"`: however far. `patience`: seconds that `advance` waits for the
        slowest. `tolerates_loss`: workers go on without those that are lost. `group`: the ranks;
        those that the environment tells of.
        """
        self._shapes = {name: (shape,) if isinstance(shape, int) else tuple(shape) for name, shape in tensors.items()}
        for name, shape in self._shapes.items():
            if (
                not all(isinstance(length, int) and length >= 0 for length in shape)
                or math.prod(shape) > sys.maxsize // _ITEM
            ):
                raise ConfigError(
                    f"parameter server: the shape of {name!r} is {shape}: give the lengths of its axes, as whole numbers from 0"
                )
        bound = 0
        if not isinstance(consistency, str):
            consistency, bound = "bounded", operator.index(consistency)
            if bound < 0:
                raise ConfigError(f"parameter server: consistency is {bound}: a number of steps is 0 or more")
        self._tolerates_loss = tolerates_loss
        self._process = os.getpid()
        self.group = _of_environment() if group is None else group
        everybody = range(self.group.size)
        ranks = [list(everybody if given is None else given) for given in (servers, workers)]
        for rank in (rank for given in ranks for rank in given if rank not in everybody):
            raise ConfigError(
                f"parameter server: rank {rank} is not in this group; its ranks are 0 to {self.group.size - 1}"
            )
        self._native = _native.ParameterServer.start(
            self.group,
            [(name, math.prod(shape)) for name, shape in self._shapes.items()],
            *ranks,
            consistency,
            bound,
            patience,
        )

    @property
    def rank(self) -> int:
        """This rank's number, from 0."""
        return self.group.rank

    @property
    def size(self) -> int:
        """How many ranks there are, servers and workers."""
        return self.group.size

    def push(self, name: str, values: object, how: str = "add") -> None:
        """Changes a tensor: `"add"` adds values of its shape, or flat, to it, and `"assign"`
        replaces it. Float32 is taken where it lies; what NumPy or PyTorch can make float32 of
        is.
        """
        if how not in ("add", "assign"):
            raise ConfigError(f'parameter server: there is no push {how!r}: it is "add" or "assign"')
        shape = self._shape(name)
        view = self._fitting(name, shape, _as_floats(name, values))
        # Memory that may not be written has no address to be had without a copy.
        address, keep = _address(bytearray(view) if view.readonly else view)
        self._native.push(name, address, view.nbytes // _ITEM, how == "assign")
        del keep

    def pull(self, name: str, into: object = None) -> memoryview:
        """Reads a tensor: into new memory, given as a `memoryview` of its shape (flat where that
        is `()` or has a 0) that `numpy.asarray` takes as it is; or `into` yours: float32 in an
        array, or in a tensor of PyTorch's on the CPU.
        """
        shape = self._shape(name)
        if into is None:
            flat = memoryview(bytearray(_ITEM * math.prod(shape)))
            view = flat.cast("f", shape) if shape and flat.nbytes else flat.cast("f")
        else:
            view = self._fitting(name, shape, _as_it_lies(name, into))
            if view.readonly:
                raise ConfigError(f"parameter server: the memory for {name!r} cannot be written")
        address, keep = _address(view)
        self._native.pull(name, address, view.nbytes // _ITEM)
        del keep
        return view

    def advance(self) -> Advanced:
        """This worker has done a step. Waits until the slowest is near enough;
        `DeadlineExceeded` names them when the patience is over, and calling it again waits on.
        Where a worker is lost, this raises `PeerGaveUp` unless losses are tolerated.
        """
        advanced = Advanced(*self._native.advance())
        if advanced.lost and not self._tolerates_loss:
            error = PeerGaveUp(
                f"parameter server: workers of ranks {advanced.lost} were lost before step {advanced.clock}: look what they said last; "
                "tolerates_loss=True goes on without them"
            )
            error.ranks, error.operation, error.number = advanced.lost, "advance of a worker's clock", advanced.clock
            raise error
        return advanced

    def end(self) -> list[tuple[int, CommError]]:
        """This worker is done; the `with` statement calls this. A server serves until all
        workers have ended or were lost, however long, and gives which were lost, and why.
        """
        return self._native.end()

    def __enter__(self) -> "ParameterServer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if os.getpid() != self._process:
            # A forked process has none of this.
            return
        # A script that exits with 0 has ended well.
        if kind is None or (isinstance(error, SystemExit) and not error.code):
            self.end()
        else:
            self._native.give_up()

    def _shape(self, name: str) -> tuple[int, ...]:
        if name not in self._shapes:
            raise ConfigError(f"parameter server: there is no tensor {name!r}; there are {', '.join(self._shapes)}")
        return self._shapes[name]

    @staticmethod
    def _fitting(name: str, shape: tuple[int, ...], view: memoryview) -> memoryview:
        if view.shape not in (shape, (math.prod(shape),)):
            raise ConfigError(f"parameter server: tensor {name!r} has the shape {shape}, not {view.shape}")
        return view


def _of_environment() -> Group:
    global _joined
    if _joined is None or _joined[0] != os.getpid():
        _joined = (os.getpid(), Group.join({}))
    return _joined[1]


def _as_floats(name: str, values: object) -> memoryview:
    """Values as contiguous float32; what is that already is not copied."""
    try:
        if hasattr(values, "detach"):
            values = values.detach().cpu().float().contiguous().numpy()
        elif not _is_plain(values):
            import numpy

            values = numpy.ascontiguousarray(values, dtype=numpy.float32)
    except ImportError:
        raise ConfigError(
            f"parameter server: values for {name!r} are no array of float32, and there is no NumPy to make it one"
        ) from None
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"parameter server: values for {name!r} cannot be made float32: {error}") from None
    return memoryview(values)


def _as_it_lies(name: str, memory: object) -> memoryview:
    """Memory to be written: contiguous float32."""
    try:
        view = memoryview(memory.detach().numpy() if hasattr(memory, "detach") else memory)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"parameter server: the memory for {name!r} cannot be written: {error}") from None
    if not _is_plain(view):
        what = "not contiguous" if _is_float32(view) else f"of format {view.format!r}, not float32"
        raise ConfigError(
            f"parameter server: the memory for {name!r} is {what}: pull without `into`, or into an array made for it"
        )
    return view


def _is_float32(view: memoryview) -> bool:
    return view.format in ("f", "<f", "=f", "@f")


def _is_plain(values: object) -> bool:
    """Whether this is memory of contiguous float32."""
    try:
        view = memoryview(values)
    except TypeError:
        return False
    return _is_float32(view) and view.c_contiguous


def _address(memory: memoryview | bytearray) -> tuple[int, object]:
    """Where writable memory is, and what keeps it there."""
    bytes_ = memoryview(memory).nbytes
    if not bytes_:
        return 0, None
    keep = (ctypes.c_char * bytes_).from_buffer(memory)
    return ctypes.addressof(keep), keep
