"""Activation checkpointing as calls, in place of `torch.utils.checkpoint`'s."""

from __future__ import annotations

from typing import Any

from torch import nn

from smdistributed.modelparallel.torch import recompute
from smdistributed.modelparallel.torch.exceptions import SMPValidationError

__all__ = ["checkpoint", "checkpoint_sequential"]


def checkpoint(module: nn.Module, *args: Any, preserve_rng_state: bool = True, **kwargs: Any) -> Any:
    """The module's output; its activations are computed again in the backward pass. Modules
    only.
    """
    if not isinstance(module, nn.Module):
        raise SMPValidationError("checkpoint: only torch.nn.Module can be checkpointed; put the function into a module")
    if isinstance(module, nn.Sequential):
        raise SMPValidationError("checkpoint: use checkpoint_sequential for nn.Sequential")
    return recompute.again(module, *args, preserve_rng_state=preserve_rng_state, **kwargs)


def checkpoint_sequential(
    sequential: nn.Sequential,
    input: Any,
    strategy: str = "each",
    preserve_rng_state: bool = True,
    pack_args_as_tuple: bool = False,
) -> Any:
    """The Sequential's output; `strategy` (each, contiguous or group_N) says what is recomputed
    together.
    """
    if not isinstance(sequential, nn.Sequential):
        raise SMPValidationError("checkpoint_sequential: give an nn.Sequential")
    recompute.set_activation_checkpointing(sequential, preserve_rng_state, pack_args_as_tuple, strategy)
    return sequential(input)
