"""Dynamic loss scaling that is right for accumulation."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from shoal import _native

__all__ = ["LossScale"]

_LARGEST = 1.7976931348623157e308


@dataclass(frozen=True)
class _Options:
    initial: float
    growth: float
    backoff: float
    interval: int
    min: float
    max: float
    tolerance: int
    consecutive: bool


class LossScale:
    """The scale of a rank that runs `passes` passes for each step of the optimizer; the defaults
    are PyTorch's.

        scale = LossScale(passes=4)
        for batch in four_batches:
            (loss(batch) * scale.scale).backward()
            scale.add(finite(gradients))
        if scale.step(found=any_rank(scale.found)):
            optimizer.step()            # gradients divided by the scale of before

    The scale changes only in `step`, and a pass that was not finite on any rank skips the step on
    all. `tolerance` is DeepSpeed's hysteresis. Keras' defaults are `initial=2**15, min=1`, smp's
    `initial=2**32, interval=1000, min=1`, DeepSpeed's `interval=1000, min=1, tolerance=2`.
    """

    def __init__(
        self,
        passes: int = 1,
        *,
        initial: float = 2.0**16,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
        min: float = 0.0,
        max: float = _LARGEST,
        tolerance: int = 1,
        consecutive: bool = False,
    ) -> None:
        options = _Options(initial, growth, backoff, interval, min, max, tolerance, consecutive)
        self._native = _native.LossScale(json.dumps(asdict(options)), passes)

    @property
    def scale(self) -> float:
        """What the loss of every pass of this step is multiplied by."""
        return self._native.scale()

    @property
    def found(self) -> bool:
        """A pass of this step on this rank was not finite; to be reduced over all ranks."""
        return self._native.found()

    def add(self, finite: bool) -> bool:
        """The gradient of a pass is there. Returns whether it was the step's last."""
        return self._native.pass_(finite)

    def step(self, found: bool) -> bool:
        """Decides the step: whether to apply it. `found`: a pass of any rank was not finite.
        Raises `Invalid` between passes.
        """
        return self._native.step(found)

    def restart(self, passes: int) -> None:
        """The number of passes changes, and what was accumulated is thrown away."""
        self._native.restart(passes)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        state: dict[str, Any] = json.loads(self._native.state())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on as the one that was stored, with the passes of this one: the world may have
        changed.
        """
        self._native.load(json.dumps(state))
