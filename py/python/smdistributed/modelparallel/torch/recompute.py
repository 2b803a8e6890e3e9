"""Activation checkpointing: a module's activations are dropped after its forward pass and
recomputed for its backward pass, or kept on the CPU (`offload_activations`).
"""

from __future__ import annotations

import re
import warnings
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint as torch_checkpoint

from smdistributed.modelparallel.torch.exceptions import CheckpointingError, SMPValidationError
from smdistributed.modelparallel.torch.state_mod import state

__all__ = ["check", "groups", "set_activation_checkpointing"]

#: On a module: its settings.
MARK = "_smp_checkpoint"


class _Host:
    """A checkpoint whose inputs are kept on the CPU."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        pin = torch.cuda.is_available()
        with torch.autograd.graph.save_on_cpu(pin_memory=pin):
            return self.call(*args, **kwargs)


def again(call: Any, *args: Any, preserve_rng_state: bool = True, **kwargs: Any) -> Any:
    """Runs `call` without keeping its activations."""
    if not torch.is_grad_enabled():
        return call(*args, **kwargs)
    run = partial(torch_checkpoint, call, use_reentrant=False, preserve_rng_state=preserve_rng_state)
    return (_Host(run) if state.initialized and state.cfg.offload_activations else run)(*args, **kwargs)


def is_strategy(text: str) -> bool:
    """each, contiguous or group_N."""
    return text in ("each", "contiguous") or bool(re.fullmatch(r"group_[1-9]\d*", text))


def set_activation_checkpointing(
    module: nn.Module, preserve_rng_state: bool = True, pack_args_as_tuple: bool = False, strategy: str = "each"
) -> None:
    """Recomputes the module's activations in its backward pass from now on. For an
    nn.Sequential, `strategy` says what is recomputed together: each child, all neighbours on one
    stage (`contiguous`), or groups of N (`group_N`); `pack_args_as_tuple` is for children that
    take one tuple, and changes nothing, as they are called with what the child before them
    returned.
    """
    if not isinstance(module, nn.Module):
        raise SMPValidationError(
            f"set_activation_checkpointing: {type(module).__name__} is no torch.nn.Module; functions cannot be checkpointed"
        )
    if not is_strategy(strategy):
        raise SMPValidationError(
            f"set_activation_checkpointing: strategy {strategy!r}: give 'each', 'contiguous' or 'group_N', as 'group_2'"
        )
    if not isinstance(module, nn.Sequential) and (strategy != "each" or pack_args_as_tuple):
        raise SMPValidationError(
            "set_activation_checkpointing: strategy and pack_args_as_tuple are for nn.Sequential only"
        )
    object.__setattr__(module, MARK, (strategy, preserve_rng_state))
    if type(module).forward is nn.Sequential.forward:
        if "forward" not in module.__dict__:
            module.forward = partial(_sequential, module)
    else:
        plain = module._call_impl
        module._compiled_call_impl = lambda *args, **kwargs: again(
            plain, *args, preserve_rng_state=preserve_rng_state, **kwargs
        )


def _sequential(module: nn.Sequential, value: Any) -> Any:
    for run in groups(module, 0, len(module)):
        value = run(value)
    return value


def groups(module: nn.Sequential, begin: int, end: int) -> list[Any]:
    """The groups of these children, which are on one stage, that are recomputed together."""
    children = list(module)[begin:end]
    settings = module.__dict__.get(MARK)
    if settings is None:
        return children
    strategy, preserve = settings
    size = {"each": 1, "contiguous": len(children)}.get(strategy) or int(strategy.split("_")[1])
    return [
        partial(again, partial(_each, children[at : at + size]), preserve_rng_state=preserve)
        for at in range(0, len(children), size)
    ]


def _each(children: list[nn.Module], value: Any) -> Any:
    for child in children:
        value = child(value)
    return value


def check(module: nn.Module, stages: dict[str, int], automatic: bool) -> None:
    """A checkpointed module must be within one stage: otherwise an error if the partition is
    manual, and a warning and no checkpointing if it is automatic.
    """
    for name, it in module.named_modules():
        settings = it.__dict__.get(MARK)
        if settings is None:
            continue
        inside = {
            stage for other, stage in stages.items() if other == name or other.startswith(f"{name}." if name else "")
        }
        if type(it).forward is nn.Sequential.forward:
            # Its children are checkpointed where they are, and each of them must be within a stage.
            inside = (
                {max(_count(stages, f"{name}.{part}" if name else part) for part in it._modules)} if len(it) else set()
            )
            crosses = inside != {1} and bool(inside)
        else:
            crosses = len(inside) > 1
        if not crosses:
            continue
        text = f"activation checkpointing of {name or 'the model'!r}: it is on several partitions; checkpoint its children, or put it on one partition"
        if not automatic:
            raise CheckpointingError(text)
        warnings.warn(f"{text}; it is not checkpointed", stacklevel=2)
        object.__delattr__(it, MARK)
        it._compiled_call_impl = None
        it.__dict__.pop("forward", None)


def _count(stages: dict[str, int], name: str) -> int:
    return len({stage for other, stage in stages.items() if other == name or other.startswith(f"{name}.")})
