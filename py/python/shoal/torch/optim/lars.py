"""LARS (You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from shoal.torch.optim.layers import not_negative, times
from shoal.torch.optim.layerwise import LayerWise

__all__ = ["LARS"]


class LARS(LayerWise):
    """Momentum with a rate for each layer: `trust` |w| / (|g| + decay |w|) times `lr`; 1 time where
    a norm is 0. As `shoal.parallel.lars_step`.

    Vectors (biases, parameters of normalisations) have neither ratio nor decay; a group with
    `adapt` True or False decides for all of its parameters (`layers` makes such groups). The
    velocity has the rate in it, so `Schedule(momentum_correction=True)` may correct it.
    """

    def __init__(
        self,
        params: Iterable[torch.Tensor] | Iterable[dict[str, Any]],
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        trust: float = 0.001,
        *,
        adapt: bool | None = None,
    ):
        not_negative("LARS", lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust)
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "weight_decay": weight_decay,
                "trust": trust,
                "adapt": adapt,
                "correction": 1.0,
            },
        )

    def _step(
        self, group: dict[str, Any], adapted: bool, parameters: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> None:
        for it in parameters:
            if "velocity" not in self.state[it]:
                self.state[it]["velocity"] = torch.zeros_like(it)
        velocities = [self.state[it]["velocity"] for it in parameters]
        decay, rate = group["weight_decay"], float(group["lr"])
        if adapted:
            directions = (
                torch._foreach_add(gradients, parameters, alpha=decay) if decay else torch._foreach_mul(gradients, 1.0)
            )
            weights, norms = (torch.stack(torch._foreach_norm(it)).double() for it in (parameters, gradients))
            ratio = group["trust"] * weights / (norms + decay * weights)
            times(directions, rate * torch.where((weights > 0) & (norms > 0), ratio, 1.0))
        else:
            directions = torch._foreach_mul(gradients, rate)
        torch._foreach_mul_(velocities, group["momentum"] * group["correction"])
        torch._foreach_add_(velocities, directions)
        torch._foreach_sub_(parameters, velocities)
