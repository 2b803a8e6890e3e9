"""Snapshots of models, for tests of training scripts: written to a file, and compared with those
of another run.
"""

from __future__ import annotations

import os
from typing import Any

import torch

__all__ = ["dump_model", "verify"]


def _state(model: Any) -> dict[str, torch.Tensor]:
    own = model.local_state_dict() if hasattr(model, "local_state_dict") else model.state_dict()
    found = {name: it.detach().cpu() for name, it in own.items() if isinstance(it, torch.Tensor)}
    found.update(
        {
            f"{name}.grad": it.grad.detach().cpu()
            for name, it in model.named_parameters()
            if it.grad is not None and it.grad.layout is torch.strided
        }
    )
    return found


def dump_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Writes parameters, buffers and gradients of this rank's part of a model."""
    torch.save(_state(model), path)


def verify(model: Any, path: str | os.PathLike[str], atol: float = 1e-5, rtol: float = 1e-4) -> None:
    """Compares them with what `dump_model` wrote, of the same part or of the whole model. Raises
    AssertionError with the name of what differs.
    """
    wanted = torch.load(path, map_location="cpu", weights_only=False)
    for name, it in _state(model).items():
        if name not in wanted:
            raise AssertionError(f"{name} is not in {os.fspath(path)}")
        torch.testing.assert_close(
            it, wanted[name], atol=atol, rtol=rtol, msg=lambda text, name=name: f"{name}: {text}"
        )
