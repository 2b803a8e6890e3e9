"""Facts that scripts store beside shards of sharded data parallelism."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["get_buffer_names", "get_param_shapes"]


def get_param_shapes(model: Any, optimizer: Any = None) -> list[dict[str, torch.Size]]:
    """Whole shapes of the model's parameters by name, one dict for each group of the optimizer."""
    names = {id(it): name for name, it in model.named_parameters()}
    groups = [list(model.parameters())] if optimizer is None else [group["params"] for group in optimizer.param_groups]
    return [{names[id(it)]: it.shape for it in group if id(it) in names} for group in groups]


def get_buffer_names(model: Any) -> list[str]:
    """Names of the model's buffers."""
    return [name for name, _ in model.named_buffers()]
