"""Layer-wise adaptive rates: which parameters have one, and what LARS and LAMB have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from shoal.comm import ConfigError

__all__ = ["LayerWise", "adapts", "layers", "not_negative", "ready", "times"]


class LayerWise(torch.optim.Optimizer):
    """An optimizer that steps with all adapted parameters of a group at once, then with all others: `_step` is one of the two."""

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

    def _step(self, group: dict[str, Any], adapted: bool, parameters: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
        raise NotImplementedError


def not_negative(optimizer: str, **hyperparameters: float) -> None:
    """`ConfigError` for a hyperparameter that is negative or not a number."""
    for name, value in hyperparameters.items():
        if not value >= 0:
            raise ConfigError(f"{optimizer}: {name} is {value}; give 0 or more")


def layers(model: nn.Module, exclude: Sequence[str] = ()) -> list[dict[str, Any]]:
    """A model's parameters as two groups for `LARS` or `LAMB`: those that are adapted and decay, and those that are not: vectors (biases, normalisations) and those whose name
    matches a pattern of `exclude` (regular expressions, anywhere in the name)."""
    patterns = [re.compile(it) for it in exclude]
    adapted, others = [], []
    for name, it in model.named_parameters():
        if it.requires_grad:
            (others if it.ndim <= 1 or any(pattern.search(name) for pattern in patterns) else adapted).append(it)
    groups = [{"params": adapted, "adapt": True}, {"params": others, "adapt": False, "weight_decay": 0.0}]
    return [it for it in groups if it["params"]]


def adapts(group: dict[str, Any], parameter: torch.Tensor) -> bool:
    """Whether a parameter has a ratio and decays: as its group says; vectors have not, where it says nothing."""
    return parameter.ndim > 1 if group["adapt"] is None else group["adapt"]


def ready(name: str, group: dict[str, Any]) -> Iterable[tuple[bool, list[torch.Tensor], list[torch.Tensor]]]:
    """Parameters and gradients of a group: those that are adapted, then the others."""
    for wanted in (True, False):
        parameters = [it for it in group["params"] if it.grad is not None and adapts(group, it) is wanted]
        for it in parameters:
            if it.grad.is_sparse:
                raise RuntimeError(f"{name}: the gradient of a parameter of shape {tuple(it.shape)} is sparse; make it dense (Embedding(sparse=False))")
        if parameters:
            yield wanted, parameters, [it.grad for it in parameters]


def times(tensors: list[torch.Tensor], factors: torch.Tensor) -> None:
    """Multiplies each tensor by its factor."""
    torch._foreach_mul_(tensors, [it.to(tensor.dtype) for it, tensor in zip(factors.unbind(), tensors, strict=True)])
