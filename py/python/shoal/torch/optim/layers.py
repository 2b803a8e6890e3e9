"""Which parameters get a rate of their own, and what LARS and LAMB do to all of them at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import torch
from torch import nn

from shoal.comm import ConfigError

__all__ = ["adapts", "layers", "not_negative", "ready", "times"]


def layers(model: nn.Module, exclude: str | Sequence[str] = ()) -> list[dict[str, Any]]:
    """A model's parameters as two groups for `LARS` or `LAMB`: those that are adapted and decay,
    and those that are not: vectors (biases, normalisations) and those whose name matches a
    pattern of `exclude` (regular expressions, anywhere in the name).
    """
    if not isinstance(model, nn.Module):
        raise ConfigError(f"layers: the model is a {type(model).__name__}; give an nn.Module")
    patterns = [_pattern(it) for it in ([exclude] if isinstance(exclude, str) else exclude)]
    adapted, others = [], []
    for name, it in model.named_parameters():
        if it.requires_grad:
            (others if it.ndim <= 1 or any(pattern.search(name) for pattern in patterns) else adapted).append(it)
    groups = [{"params": adapted, "adapt": True}, {"params": others, "adapt": False, "weight_decay": 0.0}]
    return [it for it in groups if it["params"]]


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(
            f"layers: exclude {text!r} is no regular expression ({error}); re.escape() makes one of a name"
        ) from None


def not_negative(optimizer: str, **options: float) -> None:
    """Checks options of an optimizer. Raises `ConfigError` for what is no number from 0."""
    for name, value in options.items():
        if not isinstance(value, (Real, torch.Tensor)) or not value >= 0:
            raise ConfigError(f"{optimizer}: {name} is {value!r}; give 0 or more")


def adapts(group: dict[str, Any], parameter: torch.Tensor) -> bool:
    """Whether a parameter has a ratio and decays: as its group says; vectors have not, where it
    says nothing.
    """
    return parameter.ndim > 1 if group["adapt"] is None else group["adapt"]


def ready(name: str, group: dict[str, Any]) -> Iterable[tuple[bool, list[torch.Tensor], list[torch.Tensor]]]:
    """Parameters and gradients of a group: those that are adapted, then the others."""
    for wanted in (True, False):
        parameters = [it for it in group["params"] if it.grad is not None and adapts(group, it) is wanted]
        for it in parameters:
            if it.grad.is_sparse:
                raise RuntimeError(
                    f"{name}: the gradient of a parameter of shape {tuple(it.shape)} is sparse; make it dense (Embedding(sparse=False))"
                )
        if parameters:
            yield wanted, parameters, [it.grad for it in parameters]


def times(tensors: list[torch.Tensor], factors: torch.Tensor) -> None:
    """Multiplies each tensor by its factor."""
    torch._foreach_mul_(tensors, [it.to(tensor.dtype) for it, tensor in zip(factors.unbind(), tensors, strict=True)])
