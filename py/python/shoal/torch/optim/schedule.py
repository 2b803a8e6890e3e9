"""Learning rates by `shoal.parallel.Rate` as a scheduler of PyTorch's: scaled with the batch,
warm-up, decay, in steps of the optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch.optim.lr_scheduler import LRScheduler

from shoal.comm import ConfigError
from shoal.parallel import Rate

__all__ = ["Schedule", "cosine", "polynomial", "steps"]


def steps(at: Sequence[int], factor: float = 0.1) -> dict[str, Any]:
    """Times `factor` at each of these steps."""
    return {"kind": "step", "at": list(at), "factor": factor}


def polynomial(until: int, power: float = 2, end: float = 0.0) -> dict[str, Any]:
    """From the peak to `end` of it, at step `until`."""
    return {"kind": "polynomial", "until": until, "power": power, "end": end}


def cosine(until: int, end: float = 0.0) -> dict[str, Any]:
    """From the peak to `end` of it, at step `until`."""
    return {"kind": "cosine", "until": until, "end": end}


class Schedule(LRScheduler):
    """The rate of each group, which is that of one worker's batch, for `times` the batch (linear
    scaling rule, Goyal et al. 2017; `scaling="square_root"` for LAMB).

    It is reached by `warmup` steps from `start` (`None`: from the rate of one worker's batch), then
    decays as `steps`, `polynomial` or `cosine` say. Call `step()` after the optimizer's; with a
    `LargeBatch` in every pass: it counts steps of the optimizer. `momentum_correction`: for `LARS`,
    whose velocity has the rate in it. Raises `shoal.parallel.Invalid` for what is no schedule.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        times: float = 1.0,
        scaling: Literal["none", "linear", "square_root"] = "linear",
        warmup: int = 0,
        start: float | None = None,
        decay: Mapping[str, Any] | None = None,
        momentum_correction: bool = False,
        last_epoch: int = -1,
    ):
        if momentum_correction and any("correction" not in it for it in optimizer.param_groups):
            raise ConfigError(
                "Schedule: momentum_correction is for LARS; the velocity of other optimizers has no rate in it"
            )
        bases = [float(it.get("initial_lr", it["lr"])) for it in optimizer.param_groups]
        self._rates = [Rate(it, times=times, scaling=scaling, warmup=warmup, start=start, decay=decay) for it in bases]
        self._corrects = momentum_correction
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates of the groups at this step."""
        if self._corrects:
            for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
                group["correction"] = rate.momentum_correction(self.last_epoch)
        return [rate(self.last_epoch) for rate in self._rates]

    def state_dict(self) -> dict[str, Any]:
        """The position in the schedule, without the schedule's arguments."""
        return {key: value for key, value in super().state_dict().items() if not key.startswith("_rates")}
