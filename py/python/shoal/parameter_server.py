"""A parameter server: named tensors of float32 that workers push to and pull from, each at its own pace or all in step.

In a training job of several instances with `distribution={"parameter_server": {"enabled": True}}`, every instance's script is a worker and
has a part of the tensors, and nothing is to be set:

    with ParameterServer({"weights": (784, 10), "bias": 10}) as server:
        for step in range(steps):
            weights = numpy.asarray(server.pull("weights"))
            server.push("weights", -rate * gradient(weights))
            server.advance()

Elsewhere it is started on the ranks of `MASTER_ADDR`, `MASTER_PORT`, `RANK` and `WORLD_SIZE`, or on a `shoal.comm.Group`. The memory is
anything with Python's buffer protocol (NumPy's arrays, `array.array("f")`), or a tensor of PyTorch's on the CPU.
"""

import ctypes
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from shoal import _native
from shoal.comm import CommError, ConfigError, Group

__all__ = ["Advanced", "ParameterServer"]

#: Bytes of a float32.
_ITEM = 4


class Advanced(NamedTuple):
    """What a worker hears when its clock has gone on."""

    #: How often this worker has advanced.
    clock: int
    #: Ranks of workers that were lost since the start; nobody waits for them.
    lost: list[int]


class ParameterServer:
    """This rank's part in a parameter server; all ranks make one, with the same arguments, and use it in a `with` statement.

    The tensors lie in one flat space that is cut into equal parts, one for each server. Where the `with` statement ends in an exception,
    the others are told that this worker is lost, and go on without it.

    Errors are those of `shoal.comm`: `ConfigError` for a mistake of the caller, on all ranks; `PeerDied` with the rank of a server that is
    gone, whose part is gone with it.
    """

    def __init__(
        self,
        tensors: Mapping[str, int | Sequence[int]],
        *,
        servers: Iterable[int] | None = None,
        workers: Iterable[int] | None = None,
        consistency: str | int = "synchronous",
        patience: float = 300.0,
        group: Group | None = None,
    ):
        """Waits until all ranks have come.

        `tensors`: shape of each, by name; they begin as zeros. `servers`, `workers`: which ranks have a part, and which push and pull; all.
        `consistency`: `"synchronous"`: in step; what is pushed counts when all have advanced, in the order of the ranks: the same bits in
        every run. A number: a worker may be so many steps ahead of the slowest, and what is pushed counts at once. `"unbounded"`: however far.
        `patience`: seconds that `advance` waits for the slowest. `group`: the ranks; those that the environment tells of.
        """
        self._shapes = {name: (shape,) if isinstance(shape, int) else tuple(shape) for name, shape in tensors.items()}
        for name, shape in self._shapes.items():
            if not all(isinstance(length, int) and length >= 0 for length in shape):
                raise ConfigError(f"parameter server: the shape of {name!r} is {shape}: give the lengths of its axes, as whole numbers from 0")
        is_bound = isinstance(consistency, int) and not isinstance(consistency, bool)
        if is_bound and consistency < 0:
            raise ConfigError(f"parameter server: consistency is {consistency}: a number of steps is 0 or more")
        self.group = Group.join({}) if group is None else group
        everybody = range(self.group.size)
        self._native = _native.ParameterServer.start(
            self.group,
            [(name, math.prod(shape)) for name, shape in self._shapes.items()],
            list(everybody if servers is None else servers),
            list(everybody if workers is None else workers),
            "bounded" if is_bound else str(consistency),
            consistency if is_bound else 0,
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
        """Changes a tensor: `"add"` adds float32 `values` of its shape, or flat, to it, and `"assign"` replaces it."""
        if how not in ("add", "assign"):
            raise ConfigError(f'parameter server: there is no push {how!r}: it is "add" or "assign"')
        view = self._view(name, values)
        # Memory that may not be written has no address to be had without a copy.
        address, keep = _address(bytearray(view) if view.readonly else view)
        self._native.push(name, address, view.nbytes // _ITEM, how == "assign")
        del keep

    def pull(self, name: str, into: object = None) -> memoryview:
        """Reads a tensor: into new memory, given as a `memoryview` of its shape that `numpy.asarray` takes as it is, or `into` yours."""
        if into is None:
            shape = self._shape(name)
            # A view of no elements, or of none at all axes, cannot be cast to a shape.
            flat = memoryview(bytearray(_ITEM * math.prod(shape)))
            view = flat.cast("f", shape) if shape and flat.nbytes else flat.cast("f")
        else:
            view = self._view(name, into)
            if view.readonly:
                raise ConfigError(f"parameter server: the memory for {name!r} cannot be written")
        address, keep = _address(view)
        self._native.pull(name, address, view.nbytes // _ITEM)
        del keep
        return view

    def advance(self) -> Advanced:
        """This worker has done a step. Waits until the slowest is near enough; `DeadlineExceeded` names them when the patience is over, and
        calling it again waits on."""
        return Advanced(*self._native.advance())

    def end(self) -> list[tuple[int, CommError]]:
        """This worker is done; the `with` statement calls this. A server serves until all workers have ended or were lost, and gives which
        were lost, and why."""
        return self._native.end()

    def __enter__(self) -> "ParameterServer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # A script that exits with 0 has ended well.
        if kind is None or (isinstance(error, SystemExit) and not error.code):
            self.end()
        else:
            self._native.give_up()

    def _shape(self, name: str) -> tuple[int, ...]:
        if name not in self._shapes:
            raise ConfigError(f"parameter server: there is no tensor {name!r}; there are {', '.join(self._shapes)}")
        return self._shapes[name]

    def _view(self, name: str, values: object) -> memoryview:
        """The memory of a caller's values, which fit the tensor."""
        shape = self._shape(name)
        if hasattr(values, "detach"):
            values = values.detach().numpy()
        try:
            view = memoryview(values)
        except TypeError:
            raise ConfigError(f"parameter server: {type(values).__name__} has no memory to share: give an array of float32") from None
        if view.format not in ("f", "<f", "=f", "@f"):
            raise ConfigError(f"parameter server: values for {name!r} are {view.format!r}, not float32: convert them, as by .astype('float32')")
        if not view.c_contiguous:
            raise ConfigError(f"parameter server: the memory of {name!r} is not contiguous: copy it, as by numpy.ascontiguousarray")
        if view.shape not in (shape, (math.prod(shape),)):
            raise ConfigError(f"parameter server: tensor {name!r} has the shape {shape}, not {view.shape}")
        return view


def _address(memory: memoryview | bytearray) -> tuple[int, object]:
    """Where writable memory is, and what keeps it there."""
    bytes_ = memoryview(memory).nbytes
    if not bytes_:
        return 0, None
    keep = (ctypes.c_char * bytes_).from_buffer(memory)
    return ctypes.addressof(keep), keep
