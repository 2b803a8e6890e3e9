"""State in flat memory: who keeps which part, and how it gets from one layout to another. Places
and sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shoal import _native
from shoal.parallel.mesh import Mesh

__all__ = ["Layout", "Piece", "Tensor", "Transfer", "reshard", "tensor_part", "zero_bytes"]


class Tensor(NamedTuple):
    """A whole tensor, row by row."""

    shape: list[int]
    #: Bytes of an element.
    element: int


class Piece(NamedTuple):
    """A part of a tensor in a rank's memory, in one piece in both."""

    tensor: int
    #: Where it begins in the whole tensor.
    start: int
    #: Where it begins in the rank's memory.
    at: int
    bytes: int


class Transfer(NamedTuple):
    """Bytes from a rank of the old layout to one of the new."""

    from_rank: int
    from_at: int
    to_rank: int
    to_at: int
    bytes: int


class Layout:
    """Where the ranks of a mesh keep tensors: one flat memory each, with the parts that are its own
    in the order of the tensors.

    `stages`: the pipeline stage of each tensor. `splits`: the dimension of each that tensor ranks
    share, `None` for those that each has whole. `sharded`: ranks along the mesh's shard axis keep a
    shard of the memory each (ZeRO). Tensors and shards begin at multiples of `align`.
    """

    def __init__(
        self, mesh: Mesh, stages: Sequence[int], splits: Sequence[int | None], *, sharded: bool = False, align: int = 64
    ) -> None:
        self._native = _native.Layout(mesh._native, list(stages), list(splits), sharded, align)

    def bytes(self, tensors: Sequence[Tensor], rank: int) -> int:
        """How much a rank keeps."""
        return self._native.bytes(list(tensors), rank)

    def pieces(self, tensors: Sequence[Tensor], rank: int) -> list[Piece]:
        """What a rank keeps, in the order of its memory."""
        return [Piece(*it) for it in self._native.pieces(list(tensors), rank)]


def reshard(
    tensors: Sequence[Tensor], old: Layout, new: Layout, *, lost: Sequence[int] = (), was: Sequence[int | None] = ()
) -> list[Transfer]:
    """The copies that make the new layout's memories of the old one's. `lost`: old ranks that
    cannot be read. `was`: of each new rank its old number, `None` if it is new; ranks behind the
    list's end keep theirs. Raises `Invalid` if all ranks with some part are lost.
    """
    return [Transfer(*it) for it in _native.reshard(list(tensors), old._native, new._native, list(lost), list(was))]


def tensor_part(tensor: Tensor, split: int | None, degree: int, index: int) -> list[tuple[int, int]]:
    """Begin and end in the whole tensor of what one of `degree` tensor ranks has, in the order
    in which it keeps it.
    """
    return _native.tensor_part(tensor.shape, tensor.element, split, degree, index)


def zero_bytes(level: int, parameters: int, shards: int, *, precision: tuple[int, int, int] = (4, 4, 8)) -> int:
    """Bytes of a rank under ZeRO 0 to 3. `precision`: bytes of a parameter, of its gradient and
    of its optimizer state (Adam in float32; mixed: 2, 2, 12).
    """
    return _native.zero_bytes(level, parameters, precision, shards)
