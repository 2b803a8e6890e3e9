"""Clipping of gradients over all ranks that have parts of the model."""

import math
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp._flat_param import FlatParamHandle
from torch.distributed.tensor import DTensor

from torch.sagemaker.transformation import is_tensor_sharded
from torch.sagemaker.utils.module_utils import default_device
from torch.sagemaker.world import state

__all__ = ["clip_grad_norm_"]


def clip_grad_norm_(model: nn.Module, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """Scales the gradients so that their norm over all parameters is at most `max_norm`; gives
    the norm before. All ranks call it. The model is FSDP's, also within wrappers for
    activations, or a plain one.
    """
    root = _fsdp_root(model)
    tensor_parallel = state.is_initialized and state.tp_size > 1
    if root is not None and not tensor_parallel:
        return root.clip_grad_norm_(max_norm, norm_type)
    if root is None and not tensor_parallel:
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm, norm_type)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm
    return _clip_over_tensor_ranks(model, root, float(max_norm), float(norm_type))


def _clip_over_tensor_ranks(model: nn.Module, root: FSDP | None, max_norm: float, norm_type: float) -> torch.Tensor:
    split: list[torch.Tensor] = []
    whole: list[torch.Tensor] = []
    flat: set[int] = set()
    for unit in model.modules():
        handle = unit._handle if isinstance(unit, FSDP) else None
        if handle is not None and not handle._use_orig_params:
            flat.add(id(handle.flat_param))
            for is_split, gradient in _pieces(handle):
                (split if is_split else whole).append(gradient)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in flat and parameter.grad is not None and parameter.grad.numel():
                gradient = parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
                (split if is_tensor_sharded(module, name) else whole).append(gradient.detach())
    # Where the groups have operations: gradients that FSDP offloads are in host memory, and a rank
    # may have none.
    device = default_device() if state.mesh.device_type == "cuda" else torch.device("cpu")
    of_split, of_whole = (_power(it, norm_type, device) for it in (split, whole))
    sharded = root is not None and root.sharding_strategy is not ShardingStrategy.NO_SHARD
    if math.isinf(norm_type):
        total = torch.maximum(of_split, of_whole)
        dist.all_reduce(total, dist.ReduceOp.MAX, state.tp_process_group)
        if sharded:
            dist.all_reduce(total, dist.ReduceOp.MAX, root.process_group)
        norm = total
    else:
        dist.all_reduce(of_split, group=state.tp_process_group)
        total = of_split + of_whole
        if sharded:
            dist.all_reduce(total, group=root.process_group)
        norm = total.pow(1 / norm_type)
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in [*split, *whole]:
        gradient.mul_(factor.to(gradient.device, gradient.dtype))
    return norm


def _pieces(handle: FlatParamHandle) -> Iterator[tuple[bool, torch.Tensor]]:
    """Of a flat gradient: what this rank has of each parameter's, and whether tensor ranks have
    parts of it.
    """
    flat = handle.flat_param
    if flat.grad is None:
        return
    gradient = flat.grad.detach().view(-1)
    first = handle.rank * gradient.numel() if handle.uses_sharded_strategy else 0
    at = 0
    parameters = iter(flat._param_infos)
    for numel, is_padding in zip(flat._numels_with_padding, flat._is_padding_mask, strict=True):
        begin, end = max(at - first, 0), min(at + numel - first, gradient.numel())
        at += numel
        if is_padding:
            continue
        name, module, _ = next(parameters)
        if begin < end:
            yield is_tensor_sharded(module, name), gradient[begin:end]


def _power(gradients: Iterable[torch.Tensor], norm_type: float, device: torch.device) -> torch.Tensor:
    norms = [torch.linalg.vector_norm(it, norm_type, dtype=torch.float32) for it in gradients]
    if not norms:
        return torch.zeros((), device=device)
    total = torch.stack(norms).max() if math.isinf(norm_type) else torch.stack(norms).pow(norm_type).sum()
    return total.to(device)


def _fsdp_root(model: nn.Module) -> FSDP | None:
    return next((it for it in model.modules() if isinstance(it, FSDP)), None)
