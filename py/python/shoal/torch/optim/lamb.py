"""LAMB (You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes",
2020).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from shoal.comm import ConfigError
from shoal.torch.optim.layers import not_negative, times
from shoal.torch.optim.layerwise import LayerWise

__all__ = ["LAMB"]


class LAMB(LayerWise):
    """Adam with decay, whose step of a layer is made |w| / |step| as long; 1 time where a norm is
    0. As `shoal.parallel.lamb_step`.

    Vectors (biases, parameters of normalisations) have neither ratio nor decay; a group with
    `adapt` True or False decides for all of its parameters (`layers` makes such groups). `highest`:
    |w| counts as at most this.
    """

    def __init__(
        self,
        params: Iterable[torch.Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        highest: float | None = None,
        adapt: bool | None = None,
    ):
        not_negative("LAMB", lr=lr, eps=eps, weight_decay=weight_decay)
        if not isinstance(betas, (tuple, list)) or len(betas) != 2 or not all(0 <= it < 1 for it in betas):
            raise ConfigError(f"LAMB: betas are {betas}; give two numbers from 0 to below 1")
        super().__init__(
            params,
            {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "highest": highest, "adapt": adapt},
        )

    def _step(
        self, group: dict[str, Any], adapted: bool, parameters: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> None:
        for it in parameters:
            if not self.state[it]:
                self.state[it].update(step=0, first=torch.zeros_like(it), second=torch.zeros_like(it))
            self.state[it]["step"] += 1
        beta1, beta2 = group["betas"]
        first, second = ([self.state[it][name] for it in parameters] for name in ("first", "second"))
        torch._foreach_mul_(first, beta1)
        torch._foreach_add_(first, gradients, alpha=1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        # Parameters that came later, or had no gradient at times, are at other steps.
        steps = [self.state[it]["step"] for it in parameters]
        roots = torch._foreach_div(second, [1 - beta2**step for step in steps])
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, group["eps"])
        directions = torch._foreach_div(first, [1 - beta1**step for step in steps])
        torch._foreach_div_(directions, roots)
        rate = float(group["lr"])
        if adapted:
            if group["weight_decay"]:
                torch._foreach_add_(directions, parameters, alpha=group["weight_decay"])
            weights, norms = (torch.stack(torch._foreach_norm(it)).double() for it in (parameters, directions))
            longest = weights if group["highest"] is None else weights.clamp(max=group["highest"])
            times(directions, rate * torch.where((weights > 0) & (norms > 0), longest / norms, 1.0))
        else:
            torch._foreach_mul_(directions, rate)
        torch._foreach_sub_(parameters, directions)
