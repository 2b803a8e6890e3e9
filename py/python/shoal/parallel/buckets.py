"""Gradients that are sent together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from shoal import _native

__all__ = ["Bucket", "Launches", "buckets"]


@dataclass(frozen=True)
class Bucket:
    """Gradients in one piece of memory."""

    #: Which gradients, and where each begins, in bytes.
    members: list[tuple[int, int]]
    #: Size of the whole.
    bytes: int
    #: Of all its members.
    kind: int


def buckets(
    gradients: Sequence[tuple[int, int]], *, cap: int = 25 << 20, first_cap: int = 1 << 20, align: int = 64
) -> list[Bucket]:
    """Buckets in the order in which they are sent. `gradients`: bytes and kind (a number for
    type and device) of each, in the order of use.
    """
    found = json.loads(_native.buckets(list(gradients), cap, first_cap, align))
    return [Bucket([(index, offset) for index, offset in it["members"]], it["bytes"], it["kind"]) for it in found]


class Launches:
    """Which buckets may be sent in a backward pass: in the same order on every rank, in whatever
    order gradients become ready.
    """

    def __init__(self, buckets: Sequence[Bucket]) -> None:
        self._native = _native.Launches(
            json.dumps([{"members": it.members, "bytes": it.bytes, "kind": it.kind} for it in buckets])
        )

    def ready(self, gradient: int) -> list[int]:
        """A gradient is ready; returns the buckets to send now."""
        return self._native.ready(gradient)

    def unready(self) -> list[int]:
        """Gradients that are not ready."""
        return self._native.unready()
