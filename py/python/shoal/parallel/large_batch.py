"""Large batches: learning rates, and the formulas of LARS and LAMB for reference (on lists,
slow).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from shoal import _native
from shoal.parallel.whole import invalid, whole

__all__ = ["Rate", "lamb_ratio", "lamb_step", "lars_ratio", "lars_step"]


class Rate:
    """The learning rate of each step of the optimizer: `base`, scaled for `times` the batch,
    reached by `warmup` steps, and decayed.

    `decay` is `None` or one of
    `{"kind": "step", "at": [3000, 6000], "factor": 0.1}`,
    `{"kind": "polynomial", "until": 9000, "power": 2, "end": 0}`,
    `{"kind": "cosine", "until": 9000, "end": 0}`, where `end` is a part of the peak.
    `start` is where the warm-up begins; `None`: at `base` (Goyal et al.).
    """

    def __init__(
        self,
        base: float,
        *,
        times: float = 1.0,
        scaling: Literal["none", "linear", "square_root"] = "linear",
        warmup: int = 0,
        start: float | None = None,
        decay: Mapping[str, Any] | None = None,
    ) -> None:
        if decay is not None and not (isinstance(decay, Mapping) and "kind" in decay):
            raise invalid(
                "decay",
                f'{decay!r} is none; give steps(..), polynomial(..) or cosine(..) of shoal.torch.optim, or a dict with "kind" of them',
            )
        if scaling not in ("none", "linear", "square_root"):
            raise invalid("scaling", f'{scaling!r} is none; it is "none", "linear" or "square_root"')
        warmup = whole("warmup", warmup)
        options = {
            "base": base,
            "times": times,
            "scaling": scaling,
            "warmup": warmup,
            "start": start,
            "decay": dict(decay or {"kind": "constant"}),
        }
        self._native = _native.Rate(json.dumps(options))

    def __call__(self, step: int) -> float:
        """Of a step, counted from 0."""
        return self._native.at(step)

    def momentum_correction(self, step: int) -> float:
        """What a velocity that has the rate in it is multiplied by before the step."""
        return self._native.momentum_correction(step)


def _lars(momentum: float, decay: float, trust: float) -> str:
    return json.dumps({"momentum": momentum, "decay": decay, "trust": trust})


def lars_ratio(weights: float, gradient: float, *, decay: float = 5e-4, trust: float = 0.001) -> float:
    """What LARS multiplies the rate of a layer by, from the squared norms of its weights and
    gradient.
    """
    return _native.lars_ratio(_lars(0.9, decay, trust), weights, gradient)


def lars_step(
    rate: float,
    weights: Sequence[float],
    gradient: Sequence[float],
    velocity: Sequence[float],
    *,
    momentum: float = 0.9,
    decay: float = 5e-4,
    trust: float = 0.001,
) -> tuple[list[float], list[float]]:
    """One step of a whole layer; returns weights and velocity."""
    return _native.lars_step(_lars(momentum, decay, trust), rate, list(weights), list(gradient), list(velocity))


def _lamb(betas: tuple[float, float], epsilon: float, decay: float, highest: float | None) -> str:
    return json.dumps({"beta1": betas[0], "beta2": betas[1], "epsilon": epsilon, "decay": decay, "highest": highest})


def lamb_ratio(weights: float, direction: float, *, highest: float | None = None) -> float:
    """What LAMB multiplies the rate of a layer by, from the squared norms of its weights and of
    its direction.
    """
    return _native.lamb_ratio(_lamb((0.9, 0.999), 1e-6, 0.01, highest), weights, direction)


def lamb_step(
    rate: float,
    step: int,
    weights: Sequence[float],
    gradient: Sequence[float],
    moments: tuple[Sequence[float], Sequence[float]],
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-6,
    decay: float = 0.01,
    highest: float | None = None,
) -> tuple[list[float], list[float], list[float]]:
    """One step of a whole layer, counted from 1; returns weights and both moments."""
    first, second = moments
    options = _lamb(betas, epsilon, decay, highest)
    return _native.lamb_step(options, rate, step, list(weights), list(gradient), (list(first), list(second)))
