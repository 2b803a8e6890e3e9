"""Where graphs of autograd begin and end at other ranks."""

from __future__ import annotations

from typing import Any

import torch

from smdistributed.modelparallel.torch.exceptions import SMPRuntimeError

__all__ = ["Box", "Remote", "feed"]


class Box:
    """Gradients of tensors that came from outside."""

    def __init__(self, tensors: int = 0) -> None:
        self._grads: list[torch.Tensor | None] = [None] * tensors
        self.filled = False
        #: Whether its gradients were sent: more of them would be too late.
        self.spent = False

    def put(self, places: list[int], grads: tuple[torch.Tensor | None, ...]) -> None:
        """Adds gradients."""
        if self.spent:
            raise SMPRuntimeError(
                "model.backward: a second call for the same outputs of the model, whose gradients went to the stages already; add the losses and call it once"
            )
        self.filled = True
        for place, grad in zip(places, grads, strict=True):
            if grad is not None:
                found = self._grads[place]
                self._grads[place] = grad if found is None else found + grad

    def take(self) -> list[torch.Tensor | None]:
        """Removes and returns the gradients: one for each tensor, or None."""
        grads, self._grads = self._grads, [None] * len(self._grads)
        self.filled, self.spent = False, True
        return grads


class _Feed(torch.autograd.Function):
    """Tensors from outside as the beginning of a graph. They are not leaves, so that modules may
    change them in place, as in a graph that is not cut.
    """

    @staticmethod
    def forward(
        ctx: Any, start: torch.Tensor, box: Box, places: list[int], tensors: list[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.box, ctx.places = box, places
        return tuple(tensors)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[None, None, None, None]:
        ctx.box.put(ctx.places, grads)
        return None, None, None, None


def feed(tensors: list[torch.Tensor], needs: list[bool]) -> tuple[list[torch.Tensor], Box]:
    """The tensors, and a box that gets the gradients of those that need one."""
    box = Box(len(tensors))
    places = [place for place, need in enumerate(needs) if need]
    if not places or not torch.is_grad_enabled():
        return list(tensors), box
    fed = _Feed.apply(torch.zeros((), requires_grad=True), box, places, [tensors[place] for place in places])
    found = list(tensors)
    for place, it in zip(places, fed, strict=True):
        found[place] = it
    return found, box


class Remote(torch.autograd.Function):
    """Outputs that came from another stage. Behind the outputs stands a token, by whose gradient
    the backward pass is begun where no output's gradient is the caller's.
    """

    @staticmethod
    def forward(
        ctx: Any,
        engine: Any,
        key: tuple,
        answer: Any,
        hop: int,
        needs: list[bool],
        start: torch.Tensor,
        *inputs: torch.Tensor,
    ) -> tuple:
        ctx.set_materialize_grads(False)
        ctx.engine, ctx.key, ctx.hop, ctx.stage, ctx.needs = engine, key, hop, answer.stage, needs
        ctx.mark_non_differentiable(
            *[it for it, need in zip(answer.tensors, answer.needs_grad, strict=True) if not need]
        )
        return (*answer.tensors, torch.zeros(()))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple:
        found = ctx.engine.pull(ctx.key, ctx.hop, ctx.stage, list(grads[:-1]))
        ctx.engine = None
        return (None, None, None, None, None, None, *[it for it, need in zip(found, ctx.needs, strict=True) if need])
