"""Kinds of state dicts: FSDP's own, and a local one that has each rank's shards as they lie in
memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
from torch.distributed.tensor import DTensor

__all__ = ["SMStateDictType", "init_optim_state", "sm_state_dict_type"]


class SMStateDictType(Enum):
    """Kinds on top of FSDP's."""

    #: A rank's own shards. They fit the same number of shards only; each shard needs a checkpoint
    #: of its own, saved by the ranks that have a copy of it.
    SM_LOCAL_STATE_DICT = auto()


@contextmanager
def sm_state_dict_type(
    model: nn.Module,
    state_dict_type: StateDictType | SMStateDictType,
    state_dict_config: Any = None,
    optim_state_dict_config: Any = None,
) -> Iterator[None]:
    """Within it, `model.state_dict()` and `model.load_state_dict()` are of this kind, as with
    FSDP.state_dict_type. Local tensors are the parameters' own memory, so that what is loaded
    into them is loaded into the model.
    """
    if not isinstance(state_dict_type, SMStateDictType):
        with FSDP.state_dict_type(model, state_dict_type, state_dict_config, optim_state_dict_config):
            yield
        return

    def state_dict(*_arguments, prefix: str = "", **_named) -> dict[str, torch.Tensor]:
        return {prefix + name: it for name, it in _local_tensors(model).items()}

    def load_state_dict(given: dict[str, torch.Tensor], strict: bool = True, assign: bool = False):
        own = _local_tensors(model)
        missing, unexpected = sorted(set(own) - set(given)), sorted(set(given) - set(own))
        if strict and (missing or unexpected):
            raise RuntimeError(
                f"load_state_dict: a local state dict without {missing} and with {unexpected} on top; was it saved with as many shards?"
            )
        with torch.no_grad():
            for name, it in own.items():
                if name in given:
                    if it.shape != given[name].shape:
                        raise RuntimeError(
                            f"load_state_dict: {name} has {list(given[name].shape)}, this rank's shard {list(it.shape)}; it was saved with another number of shards"
                        )
                    it.copy_(given[name])
        return nn.modules.module._IncompatibleKeys(missing, unexpected)

    before = {name: model.__dict__.get(name) for name in ("state_dict", "load_state_dict")}
    model.__dict__.update(state_dict=state_dict, load_state_dict=load_state_dict)
    try:
        yield
    finally:
        for name, it in before.items():
            if it is None:
                del model.__dict__[name]
            else:
                model.__dict__[name] = it


def _local_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """What this rank has of each parameter, flat ones of FSDP's whole, and the buffers."""
    tensors: dict[str, torch.Tensor] = {}
    flat: set[int] = set()
    for name, module in model.named_modules():
        handle = getattr(module, "_handle", None) if isinstance(module, FSDP) else None
        if handle is not None:
            tensors[f"{name}._flat_param" if name else "_flat_param"] = handle.flat_param.detach()
            flat.update(id(it) for it in [handle.flat_param, *(handle.flat_param._params or [])])
    for name, it in model.named_parameters():
        if id(it) not in flat:
            tensors[name] = (it.to_local() if isinstance(it, DTensor) else it).detach()
    for name, it in model.named_buffers():
        tensors[name] = it.detach()
    return tensors


def init_optim_state(optimizer: torch.optim.Optimizer, skip_empty_param: bool = True) -> None:
    """Makes the optimizer's state as it is before its first step, so that there are tensors to
    load into. Parameters stay as they are. Does nothing if it has state already or there are
    gradients. `skip_empty_param`: leaves parameters without elements on this rank out.
    """
    parameters = [it for group in optimizer.param_groups for it in group["params"]]
    if optimizer.state or any(it.grad is not None for it in parameters):
        return
    rates = [(group, group["lr"]) for group in optimizer.param_groups if "lr" in group]
    for it in parameters:
        if it.requires_grad and (it.numel() or not skip_empty_param):
            it.grad = torch.zeros_like(it)
    for group, rate in rates:
        group["lr"] = torch.zeros_like(rate) if isinstance(rate, torch.Tensor) else 0.0
    try:
        # A gradient of 0 at a rate of 0 changes no parameter.
        optimizer.step()
    finally:
        for group, rate in rates:
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
    for values in optimizer.state.values():
        if "step" in values:
            values["step"] = torch.zeros_like(values["step"]) if isinstance(values["step"], torch.Tensor) else 0
