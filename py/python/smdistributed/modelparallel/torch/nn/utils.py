"""Facts of distributed parameters."""

from __future__ import annotations

import torch

from smdistributed.modelparallel.torch import registry

__all__ = ["get_distribution_axis"]


def get_distribution_axis(parameter: torch.Tensor) -> int | None:
    """The dimension that tensor parallel ranks share; none if each has the whole."""
    return registry.axis_of(parameter)
