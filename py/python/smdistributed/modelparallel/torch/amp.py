"""Gradient scaling of torch's automatic mixed precision, for a model in parts."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from smdistributed.modelparallel.torch import ranks
from smdistributed.modelparallel.torch.state_mod import state

__all__ = ["GradScaler"]


class GradScaler(torch.amp.GradScaler):
    """torch's, where a gradient that is not finite on any rank of the model parallel group skips
    the step on all of them. All these ranks call `unscale_` or `step`.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)

    def _unscale_grads_(
        self, optimizer: torch.optim.Optimizer, inv_scale: torch.Tensor, found_inf: torch.Tensor, allow_fp16: bool
    ) -> dict[torch.device, torch.Tensor]:
        found = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        whole = torch.zeros(1)
        for it in found.values():
            whole = torch.maximum(whole, it.cpu())
        if state.initialized and ranks.mp_size() > 1:
            dist.all_reduce(whole, dist.ReduceOp.MAX, state.groups.of["mp"])
        device = found_inf.device
        if not found:
            # A stage without parameters decides as the others do.
            return {device: whole.to(device)}
        return {place: whole.to(place) for place in found}

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides the gradients by the scale."""
        self._start(optimizer)
        super().unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Steps if all gradients are finite."""
        self._start(optimizer)
        return super().step(optimizer, *args, **kwargs)

    def _start(self, optimizer: torch.optim.Optimizer) -> None:
        """torch makes the scale in the first `scale(loss)`, which ranks may not have called in
        this process.
        """
        if self._enabled and self._scale is None:
            self._lazy_init_scale_growth_tracker(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
