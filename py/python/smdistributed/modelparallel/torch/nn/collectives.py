"""Collectives of tensor parallel ranks, as functions of autograd. t ranks with B samples each, x is
[B, .., d].

The gradient that arrives at a rank is that of its own samples' loss where ranks have samples of
their own, and that of the common loss where they have the same.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from smdistributed.modelparallel.torch import ranks
from smdistributed.modelparallel.torch.state_mod import state

__all__ = [
    "dropout",
    "enter",
    "from_slices",
    "gather_batch",
    "gather_last",
    "gather_plain",
    "gather_same",
    "leave",
    "mode",
    "own_batch",
    "scatter_batch",
    "slice_last",
    "to_slices",
]


def mode() -> str:
    """`same`: ranks of a group have the same samples (prescaled_batch). Otherwise each has its
    own, and activations outside of the products are of `own` samples (optimize memory) or of all
    ranks' samples (`whole`, optimize speed).
    """
    cfg = state.cfg
    return "same" if cfg.prescaled_batch else "own" if cfg.optimize == "memory" else "whole"


def _group() -> dist.ProcessGroup:
    return state.groups.of["tp"]


def _gather(x: torch.Tensor) -> torch.Tensor:
    t = ranks.tp_size()
    if t == 1:
        return x
    every = torch.empty((t * x.shape[0], *x.shape[1:]), dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(every, x.contiguous(), _group())
    return every


def _reduce_scatter(x: torch.Tensor) -> torch.Tensor:
    t = ranks.tp_size()
    if t == 1:
        return x
    own = torch.empty((x.shape[0] // t, *x.shape[1:]), dtype=x.dtype, device=x.device)
    dist.reduce_scatter_tensor(own, x.contiguous(), group=_group())
    return own


def _reduce(x: torch.Tensor) -> torch.Tensor:
    if ranks.tp_size() == 1:
        return x
    whole = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(whole, group=_group())
    return whole


def _own(x: torch.Tensor) -> torch.Tensor:
    return x.chunk(ranks.tp_size(), 0)[ranks.tp_rank()]


def _last(x: torch.Tensor) -> torch.Tensor:
    return x.chunk(ranks.tp_size(), -1)[ranks.tp_rank()].contiguous()


def _gather_last(x: torch.Tensor) -> torch.Tensor:
    t = ranks.tp_size()
    if t == 1:
        return x
    parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(t)]
    dist.all_gather(parts, x.contiguous(), _group())
    return torch.cat(parts, -1)


def _to_slices(x: torch.Tensor) -> torch.Tensor:
    t = ranks.tp_size()
    if t == 1:
        return x
    send = torch.stack(x.chunk(t, -1)).contiguous()
    receive = torch.empty_like(send)
    dist.all_to_all_single(receive, send, group=_group())
    return receive.flatten(0, 1)


def _from_slices(x: torch.Tensor) -> torch.Tensor:
    t = ranks.tp_size()
    if t == 1:
        return x
    send = x.contiguous().view(t, x.shape[0] // t, *x.shape[1:])
    receive = torch.empty_like(send)
    dist.all_to_all_single(receive, send, group=_group())
    return torch.cat(receive.unbind(0), -1)


def _pair(name: str, there: Any, back: Any, doc: str) -> Any:
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        found = there(x)
        return found.view_as(found) if found is x else found

    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return back(grad)

    made = type(
        name, (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    )

    def call(x: torch.Tensor) -> torch.Tensor:
        return x if ranks.tp_size() == 1 else made.apply(x)

    call.__doc__, call.__name__ = doc, name
    return call


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


gather_batch = _pair("gather_batch", _gather, _reduce_scatter, "[B, ..] to [tB, ..]; gradients of all ranks are added.")
scatter_batch = _pair(
    "scatter_batch", _reduce_scatter, _gather, "Sums of [tB, ..] over ranks, of which each gets its samples' [B, ..]."
)
gather_same = _pair("gather_same", _gather, _own, "[B, ..] to [tB, ..], where all ranks do the same from here on.")
own_batch = _pair("own_batch", _own, _gather, "Of [tB, ..] this rank's [B, ..].")
enter = _pair("enter", _same, _reduce, "The same tensor on all ranks before a product of parts; gradients are added.")
leave = _pair("leave", _reduce, _same, "The sum over ranks.")
slice_last = _pair("slice_last", _last, _gather_last, "Of the last dimension this rank's part.")
gather_last = _pair("gather_last", _gather_last, _last, "All ranks' parts of the last dimension.")
to_slices = _pair(
    "to_slices",
    _to_slices,
    _from_slices,
    "[B, .., d] to [tB, .., d/t]: all ranks' samples, of each this rank's features.",
)
from_slices = _pair("from_slices", _from_slices, _to_slices, "The reverse.")


def gather_plain(x: torch.Tensor) -> torch.Tensor:
    """[B, ..] to [tB, ..], without gradients."""
    return _gather(x.detach())


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, mask: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.save_for_backward(mask)
        ctx.factor = factor
        return x * mask * factor

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        (mask,) = ctx.saved_tensors
        return grad * mask * ctx.factor, None, None


def dropout(x: torch.Tensor, p: float, training: bool, split: bool) -> torch.Tensor:
    """Random numbers of each rank's own where activations are parts (`split`) or of own samples,
    the same on all ranks where activations are the same. Drawn from torch's generator, so that
    activations can be computed again.
    """
    if not training or p == 0.0:
        return x
    if split or mode() == "own" or ranks.tp_size() == 1:
        if not split or ranks.tp_size() == 1:
            return functional.dropout(x, p, True)
        seed = torch.randint(0, 2**62, (1,)) + ranks.tp_rank()
    else:
        seed = torch.randint(0, 2**62, (1,))
        where = seed.to(x.device) if x.is_cuda else seed
        dist.broadcast(where, group_src=0, group=_group())
        seed = where.cpu()
    generator = torch.Generator(x.device).manual_seed(int(seed))
    mask = torch.rand(x.shape, generator=generator, device=x.device) >= p
    return _Dropout.apply(x, mask, 1.0 / (1.0 - p) if p < 1.0 else 0.0)
