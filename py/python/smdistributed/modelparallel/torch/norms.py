"""Norms of gradients that are spread over several ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from smdistributed.modelparallel.torch import ranks, registry
from smdistributed.modelparallel.torch.state_mod import state

__all__ = ["clip", "finite", "norm"]


def norm(pairs: list[tuple[torch.Tensor, torch.Tensor]], norm_type: float = 2.0) -> torch.Tensor:
    """The norm of the whole model's gradients, of (parameter, gradient) of this rank's part; the
    same on all ranks of the model parallel group, which call this together. Parameters that are
    equal on all tensor parallel ranks count once.
    """
    infinite = norm_type == float("inf")
    total = torch.zeros((), dtype=torch.float32)
    sharded = torch.zeros((), dtype=torch.float32)
    for parameter, grad in pairs:
        if registry.axis_of(parameter) is None and ranks.tp_rank() != 0:
            continue
        local = grad.to_local() if isinstance(grad, DTensor) else grad
        value = torch.linalg.vector_norm(local.float(), norm_type).cpu() if local.numel() else torch.zeros(())
        if isinstance(grad, DTensor):
            sharded = torch.maximum(sharded, value) if infinite else sharded + value**norm_type
        else:
            total = torch.maximum(total, value) if infinite else total + value**norm_type
    op = dist.ReduceOp.MAX if infinite else dist.ReduceOp.SUM
    if state.cfg.sharded_data_parallel_degree > 1:
        dist.all_reduce(sharded, op, state.groups.of["rdp"])
        copies = ranks.rdp_size() // state.cfg.sharded_data_parallel_degree
        total = torch.maximum(total, sharded) if infinite else total + sharded / copies
    if ranks.mp_size() > 1:
        dist.all_reduce(total, op, state.groups.of["mp"])
    return total if infinite else total ** (1.0 / norm_type)


def clip(parameters: list[torch.nn.Parameter], max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """Scales gradients down to `max_norm`; returns their norm before. All ranks of the model
    parallel group call this.
    """
    pairs = [(it, it.grad) for it in parameters if it.grad is not None]
    total = norm(pairs, norm_type)
    factor = float(torch.clamp(max_norm / (total + 1e-6), max=1.0))
    if factor < 1.0:
        with torch.no_grad():
            for _, grad in pairs:
                (grad.to_local() if isinstance(grad, DTensor) else grad).mul_(factor)
    return total


def finite(grads: list[torch.Tensor]) -> bool:
    """Whether the gradients of all ranks of the world are finite; all ranks call this, so that
    they take the same decision and keep equal loss scales.
    """
    found = torch.zeros(1, dtype=torch.float32)
    for it in grads:
        local = it.to_local() if isinstance(it, DTensor) else it
        if not bool(torch.isfinite(local).all()):
            found.fill_(1.0)
            break
    if dist.get_world_size() > 1:
        dist.all_reduce(found, dist.ReduceOp.MAX)
    return not bool(found.item())
