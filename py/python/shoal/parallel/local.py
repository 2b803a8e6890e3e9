"""Training with little communication: when ranks meet, what they send, and how what they have in
common steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from shoal import _native

__all__ = ["Outer", "Streaming", "meeting"]


def meeting(step: int, *, period: int, synchronous: int = 0) -> Literal["nothing", "gradients", "weights"]:
    """What ranks exchange at a step, counted from 0: gradients in the first `synchronous` ones,
    then weights after every `period` (post-local SGD, DiLoCo).
    """
    return _native.meeting(period, synchronous, step)


@dataclass(frozen=True)
class Outer:
    """The outer step. The defaults are DiLoCo's; `Outer(1, 0, False)` takes the mean."""

    rate: float = 0.7
    momentum: float = 0.9
    nesterov: bool = True

    def step(
        self, common: Sequence[float], mean: Sequence[float], velocity: Sequence[float]
    ) -> tuple[list[float], list[float]]:
        """From what ranks began with and what they have on average now, what they go on with,
        and the velocity. For reference: on lists.
        """
        return _native.outer_step(json.dumps(asdict(self)), list(common), list(mean), list(velocity))


@dataclass(frozen=True)
class Streaming:
    """Streaming DiLoCo: `fragments` of the model take turns within `period` steps, each is
    `delay` steps on its way, and a rank keeps `mix` of its own.
    """

    period: int
    fragments: int
    delay: int = 0
    mix: float = 0.5

    def at(self, step: int) -> list[tuple[Literal["send", "receive"], int]]:
        """What happens after a step, in order: the act and the fragment."""
        return _native.turns(json.dumps(asdict(self)), step)
