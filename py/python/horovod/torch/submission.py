"""Tensors as the engine's operations take them: names, memory, element types, outputs."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from shoal.comm import CommError, ConfigError
from shoal.named import DuplicateName

from horovod.common import engine
from horovod.common.process_sets import ProcessSet, identity, members
from horovod.torch.handles import Pending

DTYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.bool: "bool",
}

_counted = defaultdict(itertools.count)
_generation = 0


def restart_numbers() -> None:
    """Numbers unnamed operations from 0 again, on all ranks at the same point."""
    _counted.clear()


def names(kind: str, name: str | None, process_set: ProcessSet) -> str:
    """An operation's name: the caller's, or the next number of its kind, so that ranks with the
    same calls in the same order agree.
    """
    if name is not None:
        return f"{kind}.{name}"
    global _generation
    if _generation != engine.generation:
        _counted.clear()
        _generation = engine.generation
    return f"{kind}.noname.{next(_counted[kind, process_set.process_set_id])}"


def check(tensor: torch.Tensor, what: str) -> None:
    """`ValueError` unless the tensor is dense, contiguous and of a type that the engine has."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{what}: expected a torch.Tensor, not {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise ValueError(
            f"{what}: Tensor type {tensor.type()} is not supported. Use sparse_allreduce_async for sparse tensors, or .to_dense()."
        )
    if tensor.dtype not in DTYPES:
        raise ValueError(f"{what}: Tensor type {tensor.type()} is not supported.")
    if not tensor.is_contiguous():
        raise ValueError(f"{what}: Tensor is required to be contiguous. Call .contiguous() first.")


def on_host(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the engine reaches their memory."""
    return all(tensor.device.type == "cpu" for tensor in tensors)


def descriptor(name: str, tensor: torch.Tensor, output: torch.Tensor | None) -> tuple:
    """A tensor for the engine; without an output, the engine allocates one."""
    return name, tensor.data_ptr(), 0 if output is None else output.data_ptr(), tensor.shape, DTYPES[tensor.dtype]


def submit(
    kind: str,
    tensors: list[tuple],
    finish: Callable,
    keep: object,
    process_set: ProcessSet,
    *,
    op: str = "sum",
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    splits: list[int] | None = None,
    grouped: bool = False,
    wait: bool = False,
) -> Pending:
    """Submits an operation; `finish` makes the output of the engine's handle. `ValueError` for
    invalid requests, such as a name that is in use.
    """
    try:
        it = engine.current()
        where = identity(process_set)
        how = {
            "op": op,
            "prescale": prescale,
            "postscale": postscale,
            "root": root,
            "splits": splits,
            "set": where,
            "keep": keep,
            "wait": wait,
        }
        if grouped or len(tensors) == 1:
            native = it.submit(kind, tensors, grouped=grouped, **how)
        else:
            native = _Each([it.submit(kind, [one], **how) for one in tensors])
    except (DuplicateName, ConfigError) as error:
        raise ValueError(str(error)) from error
    except CommError as error:
        raise engine.failed(error) from error
    return Pending(native, finish, keep)


class _Each:
    """Independent operations that were submitted together: other ranks may group and order them
    differently.
    """

    __slots__ = ("natives",)

    def __init__(self, natives: list):
        self.natives = natives

    def wait(self) -> None:
        """Waits for all; raises what the first of them failed with."""
        failed = None
        for it in self.natives:
            try:
                it.wait()
            except CommError as error:  # the others are waited for all the same: their memory is in use
                failed = failed or error
        if failed is not None:
            raise failed

    def done(self) -> bool:
        """Whether all are over."""
        return all(it.done() for it in self.natives)

    def output(self, index: int):
        """The output that the engine allocated for one of them."""
        return self.natives[index].output(0)


def allocated_output(native, index: int, like: torch.Tensor) -> torch.Tensor:
    """An output that the engine has allocated, with the type of `like`."""
    memory, shape = native.output(index)
    count = 1
    for length in shape:
        count *= length
    if count == 0:
        return like.new_empty(shape)
    return torch.from_dlpack(memory)[: count * like.element_size()].view(like.dtype).view(shape)


def own_rows(rows: int, process_set: ProcessSet) -> int:
    """This rank's share of a reduce-scatter's rows: the first (rows mod ranks) ranks have one
    more.
    """
    ranks = members(process_set)
    return rows // len(ranks) + (rank_in(process_set) < rows % len(ranks))


def rank_in(process_set: ProcessSet) -> int:
    """This rank's number in the set; `ValueError` if it is not in it."""
    return engine.current().rank if process_set.process_set_id == 0 else process_set.rank()
