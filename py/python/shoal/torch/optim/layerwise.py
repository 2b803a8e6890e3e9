"""The step that LARS and LAMB have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from shoal.torch.optim.layers import ready

__all__ = ["LayerWise"]


class LayerWise(torch.optim.Optimizer):
    """An optimizer that steps with all adapted parameters of a group at once, then with all
    others: `_step` is one of the two.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step. `closure` computes the loss again."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for adapted, parameters, gradients in ready(type(self).__name__, group):
                self._step(group, adapted, parameters, gradients)
        return loss

    def _step(
        self, group: dict[str, Any], adapted: bool, parameters: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> None:
        raise NotImplementedError
