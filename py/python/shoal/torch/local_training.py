"""Training with little communication: ranks step by themselves and meet every so many steps
(post-local SGD, DiLoCo, streaming DiLoCo).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from shoal.comm import ConfigError
from shoal.parallel import Outer, Streaming, meeting
from shoal.torch.large_batch import LargeBatch
from shoal.torch.local_training_wire import Wire, WireType, all_reduce_bytes
from shoal.torch.reach import broadcast

__all__ = ["LocalTraining"]


class _Fragment:
    """A part of the model: its weights that all ranks have in common, and their outer step."""

    def __init__(self, parameters: list[nn.Parameter], wire: Wire):
        self.parameters, self.wire = parameters, wire
        self.common = torch.zeros_like(wire.vector)
        self.velocity = torch.zeros_like(wire.vector)
        self.commons, self.moves = self._views(self.common), self._views(wire.vector)
        self.waiting: Callable[[], None] | None = None
        self.take()

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        parts = flat.split([it.numel() for it in self.parameters])
        return [part.view(it.shape) for part, it in zip(parts, self.parameters, strict=True)]

    def take(self) -> None:
        """Takes this rank's weights as those of all ranks."""
        torch._foreach_copy_(self.commons, self.parameters)

    def send(self) -> None:
        """Sends this rank's movement."""
        torch._foreach_copy_(self.moves, self.parameters)
        torch.sub(self.common, self.wire.vector, out=self.wire.vector)
        self.waiting = self.wire.send()

    def receive(self, outer: Outer, mix: float) -> None:
        """Moves the common weights by the mean movement; this rank keeps `mix` of its own."""
        waiting, self.waiting = self.waiting, None
        waiting()
        gradient = self.wire.vector
        self.velocity.mul_(outer.momentum).add_(gradient)
        if outer.nesterov:
            self.common.sub_(gradient, alpha=outer.rate).sub_(self.velocity, alpha=outer.rate * outer.momentum)
        else:
            self.common.sub_(self.velocity, alpha=outer.rate)
        if mix:
            commons = [common.to(it.device) for common, it in zip(self.commons, self.parameters, strict=True)]
            torch._foreach_lerp_(self.parameters, commons, 1 - mix)
        else:
            torch._foreach_copy_(self.parameters, self.commons)


class LocalTraining:
    """Each rank trains by its own optimizer, and all meet after every `every` steps.

        local = LocalTraining(model, torch.optim.AdamW(model.parameters(), lr=3e-4), every=100, wire="int8")
        for inputs, labels in loader:                   # each rank its own
            local.zero_grad()
            loss(model(inputs), labels).backward()
            local.step()
        local.finish()                                  # all ranks have the same weights

    `method="post_local_sgd"` takes the mean of all weights (Lin et al. 2020); `"diloco"` takes
    their mean movement as the gradient of an outer Nesterov step (Douillard et al. 2023), by
    `outer_lr` (0.7), `outer_momentum` (0.9) and `nesterov`. In the first `synchronous` steps
    gradients are averaged instead. `wire`: as what movements are sent: `"f32"`, `"bf16"` (half the
    bytes), `"int8"` (a quarter; groups of backend "shoal" only). With `fragments` the model's
    layers take turns, `delay` steps on their way each, while training goes on; `mix` of a rank's
    own weights stays then (streaming DiLoCo, 2025).

    The parameters of rank 0 are given to all at first. The optimizer's state and the model's
    buffers stay each rank's own. `wire_bytes` and `plain_bytes` count what this rank gave to
    others, and what it would have given if gradients had been averaged as float32 in each step. All
    ranks do the same number of steps.

    Raises `ConfigError` and `shoal.parallel.Invalid` for what cannot be, `CommError` where ranks
    are lost.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        method: Literal["post_local_sgd", "diloco"] = "diloco",
        every: int = 100,
        *,
        outer_lr: float | None = None,
        outer_momentum: float | None = None,
        nesterov: bool | None = None,
        synchronous: int = 0,
        wire: WireType = "f32",
        fragments: int = 1,
        delay: int = 0,
        mix: float | None = None,
        group: dist.ProcessGroup | None = None,
        seed: int = 0,
    ):
        _refuse(model, optimizer)
        self.model, self.optimizer = model, optimizer
        self.group = dist.group.WORLD if group is None else group
        self.ranks = dist.get_world_size(self.group)
        self._outer = _outer(method, outer_lr, outer_momentum, nesterov)
        self._every, self._synchronous = every, synchronous
        self._mix = (0.5 if delay else 0.0) if mix is None else mix
        self._turns = Streaming(every, fragments, delay, self._mix) if fragments > 1 or delay else None
        # Both refuse invalid settings now.
        meeting(0, period=every, synchronous=synchronous)
        self._outer.step([0.0], [0.0], [0.0])
        if self._turns is not None:
            self._turns.at(0)
        #: Steps done.
        self.steps = 0
        #: Bytes that this rank would have given to others if gradients had been averaged in each
        #: step, as float32.
        self.plain_bytes = 0
        with torch.no_grad():
            for it in model.parameters():
                broadcast(it.data, self.group)
            parts = _fragments(model, fragments)
            self._fragments = [
                _Fragment(
                    part, Wire(sum(it.numel() for it in part), wire, self.group, seed + (number << 32), part[0].device)
                )
                for number, part in enumerate(parts)
            ]
        self._length = sum(it.wire.vector.numel() for it in self._fragments)
        self._gradients: Wire | None = None

    @property
    def wire_bytes(self) -> int:
        """Bytes that this rank had to give to others so far, however they travel."""
        gradients = 0 if self._gradients is None else self._gradients.wire_bytes
        return gradients + sum(it.wire.wire_bytes for it in self._fragments)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The optimizer's."""
        self.optimizer.zero_grad(set_to_none)

    def step(self, scaler: torch.amp.GradScaler | None = None) -> None:
        """A step of this rank's optimizer, by a GradScaler if there is one (`scaler.update()` is
        the script's), and what all ranks do then.
        """
        local = self.steps - self._synchronous
        if local < 0:
            if scaler is not None:
                raise ConfigError(
                    "LocalTraining: each rank has a loss scale of its own, so gradients cannot be averaged: synchronous=0, or no GradScaler"
                )
            self._average_gradients()
        if scaler is None:
            self.optimizer.step()
        else:
            scaler.step(self.optimizer)
        with torch.no_grad():
            if self._turns is None:
                if meeting(self.steps, period=self._every, synchronous=self._synchronous) == "weights":
                    self._meet()
            elif local >= 0:
                for act, fragment in self._turns.at(local):
                    if act == "send":
                        self._fragments[fragment].send()
                    else:
                        self._fragments[fragment].receive(self._outer, self._mix)
            if local == -1:
                for it in self._fragments:
                    it.take()
        self.steps += 1
        self.plain_bytes += all_reduce_bytes(4 * self._length, self.ranks)

    @torch.no_grad()
    def finish(self) -> None:
        """All ranks meet, unless they have just met: they have the same weights when this
        returns, and may go on.
        """
        local = self.steps - self._synchronous
        for it in self._fragments:
            if it.waiting is not None:
                it.receive(self._outer, self._mix)
        if local > 0 and (self._turns is not None or local % self._every):
            self._meet()

    def _meet(self) -> None:
        for it in self._fragments:
            it.send()
        for it in self._fragments:
            it.receive(self._outer, 0.0)

    @torch.no_grad()
    def _average_gradients(self) -> None:
        parameters = [it for fragment in self._fragments for it in fragment.parameters]
        if self._gradients is None:
            self._gradients = Wire(self._length, "f32", self.group, 0, parameters[0].device)
        parts = self._gradients.vector.split([it.numel() for it in parameters])
        views = [part.view(it.shape) for part, it in zip(parts, parameters, strict=True)]
        for it, view in zip(parameters, views, strict=True):
            view.zero_() if it.grad is None else view.copy_(it.grad)
        self._gradients.send()()
        for it, view in zip(parameters, views, strict=True):
            it.grad = view.to(it.device, copy=True) if it.grad is None else it.grad.copy_(view)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint, together with model and optimizer of each rank. Raises while a
        fragment is on its way: save behind `finish`, or where none is.
        """
        if any(it.waiting is not None for it in self._fragments):
            raise ConfigError("LocalTraining: a fragment is on its way; save the state behind finish()")
        fragments = [
            {"common": it.common.clone(), "velocity": it.velocity.clone(), "left": it.wire.left}
            for it in self._fragments
        ]
        return {"steps": self.steps, "fragments": fragments}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a stored state, of the same number of fragments."""
        if len(state["fragments"]) != len(self._fragments):
            raise ConfigError(
                f"LocalTraining: the state is of {len(state['fragments'])} fragments, this has {len(self._fragments)}"
            )
        self.steps = state["steps"]
        for it, stored in zip(self._fragments, state["fragments"], strict=True):
            it.common.copy_(stored["common"])
            it.velocity.copy_(stored["velocity"])
            if it.wire.left is not None and stored["left"] is not None:
                it.wire.left.copy_(stored["left"])


def _outer(method: str, rate: float | None, momentum: float | None, nesterov: bool | None) -> Outer:
    given = {
        name: it for name, it in {"rate": rate, "momentum": momentum, "nesterov": nesterov}.items() if it is not None
    }
    if method == "diloco":
        return Outer(**given)
    if method != "post_local_sgd":
        raise ConfigError(f'LocalTraining: method is {method!r}: it is "post_local_sgd" or "diloco"')
    if given:
        raise ConfigError(
            'LocalTraining: post_local_sgd takes the mean of the weights; an outer rate or momentum is for method="diloco"'
        )
    return Outer(1.0, 0.0, False)


def _refuse(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    if not (dist.is_available() and dist.is_initialized()):
        raise ConfigError("LocalTraining: there are no ranks: call torch.distributed.init_process_group first")
    if isinstance(model, DistributedDataParallel):
        raise ConfigError(
            "LocalTraining: DistributedDataParallel averages gradients in each step; give the model that is in it (model.module)"
        )
    if isinstance(optimizer, LargeBatch) or hasattr(optimizer, "_exchange"):
        raise ConfigError(
            f"LocalTraining: {type(optimizer).__name__} averages gradients in each step; give the optimizer that is in it"
        )


def _fragments(model: nn.Module, count: int) -> list[list[nn.Parameter]]:
    """Parameters by layers in strides, which the paper of streaming DiLoCo found better than
    blocks.
    """
    layers: list[list[nn.Parameter]] = []
    seen: set[int] = set()
    for module in model.modules():
        own = [it for it in module.parameters(recurse=False) if it.requires_grad and id(it) not in seen]
        seen.update(map(id, own))
        if own:
            layers.append(own)
    if not 1 <= count <= len(layers):
        raise ConfigError(
            f"LocalTraining: fragments is {count}; the model has {len(layers)} layers with parameters, so give 1 to {len(layers)}"
        )
    return [[it for layer in layers[start::count] for it in layer] for start in range(count)]
