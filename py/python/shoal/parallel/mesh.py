"""Ranks in a mesh of parallel degrees."""

from __future__ import annotations

import json
from typing import Literal

from shoal import _native

__all__ = ["AXES", "Axis", "Mesh"]

Axis = Literal["data", "shard", "context", "pipeline", "tensor"]
#: In the order of coordinates.
AXES: tuple[Axis, ...] = ("data", "shard", "context", "pipeline", "tensor")


class Mesh:
    """`world` ranks, where data x shard x context x pipeline x tensor = world; `data=None`: what
    the others leave.

    `placement` orders the axes in the numbers of ranks: `"cluster"` (as the word `"DPT"`),
    `"spread"` (`"TPD"`), or another word of the letters D, P and T, of which the last one varies
    fastest; S (shard) and C (context) follow D if they are not named.

    Raises `Invalid` for degrees that do not fit, with the nearest that do.
    """

    def __init__(
        self,
        world: int,
        *,
        data: int | None = None,
        shard: int = 1,
        context: int = 1,
        pipeline: int = 1,
        tensor: int = 1,
        placement: str = "cluster",
    ) -> None:
        degrees = {"data": data, "shard": shard, "context": context, "pipeline": pipeline, "tensor": tensor}
        self._native = _native.Mesh(world, json.dumps(degrees), placement)

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return self._native.world()

    def size(self, *axes: Axis) -> int:
        """How many ranks a group along these axes has."""
        return self._native.size(list(axes))

    def coordinates(self, rank: int) -> dict[Axis, int]:
        """Where a rank stands along each axis."""
        return dict(zip(AXES, self._native.coordinates(rank)))

    def rank(self, *, data: int = 0, shard: int = 0, context: int = 0, pipeline: int = 0, tensor: int = 0) -> int:
        """The rank at these coordinates."""
        return self._native.rank([data, shard, context, pipeline, tensor])

    def group(self, rank: int, *axes: Axis) -> list[int]:
        """The ranks that differ from this one along these axes only, ascending."""
        return self._native.group(rank, list(axes))

    def groups(self, *axes: Axis) -> list[list[int]]:
        """All groups along these axes."""
        return self._native.groups(list(axes))

    def position(self, rank: int, *axes: Axis) -> int:
        """A rank's place in its group along these axes."""
        return self._native.position(rank, list(axes))
