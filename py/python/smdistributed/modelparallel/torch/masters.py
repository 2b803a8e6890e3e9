"""Master parameters, on which an optimizer steps: the parameters themselves, copies in float32,
or this rank's shard of all in one vector.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, distribute_tensor

from shoal.parallel import Layout, Mesh, Tensor
from smdistributed.modelparallel.torch import norms, ranks
from smdistributed.modelparallel.torch.state_mod import state

__all__ = ["Groups", "Masters", "Plain", "Shards"]

#: A parameter with its place in the user's groups, counted over all of them.
Numbered = tuple[int, torch.nn.Parameter]


class Groups:
    """The user's groups, narrowed to this rank's part."""

    def __init__(self, user: torch.optim.Optimizer, kept: list[list[Numbered]]) -> None:
        self.user, self.kept = user, kept

    def parameters(self) -> list[torch.nn.Parameter]:
        """The model's parameters."""
        return [it for group in self.kept for _, it in group]

    def any_parameters(self) -> bool:
        """Whether there are parameters to step on."""
        return any(group["params"] for group in self.user.param_groups)

    def take(self, factor: float) -> None:
        """Copies the model's gradients, times `factor`, to the masters."""
        raise NotImplementedError

    def give_back(self) -> None:
        """Copies the masters to the model after a step."""

    def refresh(self) -> None:
        """Copies the model's parameters to the masters: they have changed outside of a step."""

    def norm(self, norm_type: float) -> float:
        """Of the whole model's gradients."""
        raise NotImplementedError

    def multiply(self, factor: float) -> None:
        """Multiplies all gradients of this rank's part."""
        for group in self.user.param_groups:
            for it in group["params"]:
                if it.grad is not None:
                    (it.grad.to_local() if isinstance(it.grad, DTensor) else it.grad).mul_(factor)

    def states(self) -> dict[int, dict[str, Any]]:
        """The optimizer's state of each parameter of this rank's part, by its number."""
        raise NotImplementedError

    def put(self, states: dict[int, dict[str, Any]], local: bool = False) -> None:
        """Sets the states. `local`: tensors are this rank's shards."""
        raise NotImplementedError


class Plain(Groups):
    """The parameters themselves."""

    def __init__(self, user: torch.optim.Optimizer, kept: list[list[Numbered]]) -> None:
        super().__init__(user, kept)
        if kept:
            wanted = {id(it) for group in kept for _, it in group}
            for group, own in zip(user.param_groups, kept, strict=True):
                group["params"] = [it for _, it in own]
            for it in [it for it in user.state if id(it) not in wanted]:
                del user.state[it]

    def take(self, factor: float) -> None:
        """Multiplies the gradients by `factor`: the masters are the parameters."""
        if factor != 1.0:
            self.multiply(factor)

    def norm(self, norm_type: float) -> float:
        """Of the whole model's gradients."""
        return float(norms.norm([(it, it.grad) for it in self.parameters() if it.grad is not None], norm_type))

    def states(self) -> dict[int, dict[str, Any]]:
        """The optimizer's states."""
        return {
            number: dict(self.user.state[it]) for group in self.kept for number, it in group if it in self.user.state
        }

    def put(self, states: dict[int, dict[str, Any]], local: bool = False) -> None:
        """Sets the optimizer's states."""
        for group in self.kept:
            for number, it in group:
                found = {name: _like(value, it, local) for name, value in states.get(number, {}).items()}
                weights = found.pop(MASTER, None)
                if weights is not None:
                    with torch.no_grad():
                        it.copy_(weights)
                if found:
                    self.user.state[it] = found


class Masters(Groups):
    """A copy in float32 of each parameter in 16 bit."""

    def __init__(self, user: torch.optim.Optimizer, kept: list[list[Numbered]]) -> None:
        super().__init__(user, kept)
        self.pairs: list[tuple[int, torch.nn.Parameter, torch.nn.Parameter]] = []
        for group, own in zip(user.param_groups, kept, strict=True):
            masters = []
            for number, it in own:
                master = torch.nn.Parameter(it.detach().float().clone(), it.requires_grad)
                master.__dict__.update(it.__dict__)
                masters.append(master)
                self.pairs.append((number, it, master))
            group["params"] = masters
        user.state.clear()

    def take(self, factor: float) -> None:
        """Converts the gradients to float32."""
        for _, it, master in self.pairs:
            master.grad = None if it.grad is None else it.grad.detach().float().mul_(factor)

    def give_back(self) -> None:
        """Rounds the masters to 16 bit."""
        with torch.no_grad():
            for _, it, master in self.pairs:
                it.copy_(master)

    def refresh(self) -> None:
        """Copies the parameters to the masters."""
        with torch.no_grad():
            for _, it, master in self.pairs:
                master.copy_(it)

    def norm(self, norm_type: float) -> float:
        """Of the whole model's gradients."""
        return float(
            norms.norm([(it, master.grad) for _, it, master in self.pairs if master.grad is not None], norm_type)
        )

    def states(self) -> dict[int, dict[str, Any]]:
        """The states with the masters."""
        return {
            number: {**self.user.state.get(master, {}), MASTER: master.detach()} for number, _, master in self.pairs
        }

    def put(self, states: dict[int, dict[str, Any]], local: bool = False) -> None:
        """Sets the states, and the masters if they are among them."""
        for number, it, master in self.pairs:
            found = dict(states.get(number, {}))
            weights = found.pop(MASTER, None)
            with torch.no_grad():
                master.copy_(it if weights is None else weights)
            if found:
                self.user.state[master] = {name: _like(value, master) for name, value in found.items()}


#: The name of a master among states.
MASTER = "_smp_master"


class Shards(Groups):
    """Of each group one vector in float32, of which this rank has a part: ZeRO 1 over the ranks
    with the same part of the model (Rajbhandari et al. 2020). Each rank has all gradients, steps
    on its part, then parameters are gathered. `shoal.parallel.Layout` has the ranks' parts.
    """

    def __init__(self, user: torch.optim.Optimizer, kept: list[list[Numbered]]) -> None:
        super().__init__(user, kept)
        self.group = state.groups.of["rdp"]
        self.ranks, self.rank = ranks.rdp_size(), ranks.rdp_rank()
        mesh = Mesh(self.ranks, shard=self.ranks)
        self.pieces: list[list[list]] = []
        self.lengths: list[int] = []
        self.flat: list[torch.nn.Parameter | None] = []
        for group, own in zip(user.param_groups, kept, strict=True):
            tensors = [Tensor(list(it.shape) or [1], 4) for _, it in own]
            layout = Layout(mesh, [0] * len(own), [None] * len(own), sharded=True)
            self.pieces.append([layout.pieces(tensors, rank) if own else [] for rank in range(self.ranks)])
            self.lengths.append(
                max((layout.bytes(tensors, rank) // 4 for rank in range(self.ranks)), default=0) if own else 0
            )
            device = own[0][1].device if own else "cpu"
            vector = torch.nn.Parameter(torch.zeros(self.lengths[-1], device=device)) if own else None
            self.flat.append(vector)
            group["params"] = [vector] if own else []
        user.state.clear()
        self.refresh()

    def _copy_in(
        self, number: int, vector: torch.Tensor, sources: list[torch.Tensor | None], factor: float = 1.0
    ) -> None:
        for piece in self.pieces[number][self.rank]:
            source = sources[piece.tensor]
            part = vector[piece.at // 4 : (piece.at + piece.bytes) // 4]
            if source is None:
                part.zero_()
            else:
                part.copy_(source.reshape(-1)[piece.start // 4 : (piece.start + piece.bytes) // 4])
                if factor != 1.0:
                    part.mul_(factor)

    def _whole(self, number: int, vector: torch.Tensor) -> list[torch.Tensor]:
        """The whole of each tensor, gathered from all ranks' vectors; all ranks of the group
        call this.
        """
        every = torch.empty(self.ranks * self.lengths[number], dtype=vector.dtype, device=vector.device)
        if self.ranks > 1:
            dist.all_gather_into_tensor(every, vector.contiguous(), self.group)
        else:
            every.copy_(vector)
        found = [torch.empty(it.shape, dtype=vector.dtype, device=vector.device) for _, it in self.kept[number]]
        for rank, pieces in enumerate(self.pieces[number]):
            own = every[rank * self.lengths[number] : (rank + 1) * self.lengths[number]]
            for piece in pieces:
                part = found[piece.tensor].view(-1)[piece.start // 4 : (piece.start + piece.bytes) // 4]
                part.copy_(own[piece.at // 4 : (piece.at + piece.bytes) // 4])
        return found

    def take(self, factor: float) -> None:
        """Copies this rank's part of the gradients."""
        with torch.no_grad():
            for number, vector in enumerate(self.flat):
                if vector is None:
                    continue
                grads = [it.grad for _, it in self.kept[number]]
                if all(it is None for it in grads):
                    vector.grad = None
                    continue
                vector.grad = torch.zeros_like(vector)
                self._copy_in(number, vector.grad, grads, factor)

    def give_back(self) -> None:
        """Gathers all ranks' parts into the model."""
        with torch.no_grad():
            for number, vector in enumerate(self.flat):
                if vector is not None:
                    for (_, it), value in zip(self.kept[number], self._whole(number, vector.detach()), strict=True):
                        it.copy_(value)

    def refresh(self) -> None:
        """Copies this rank's part of the parameters."""
        with torch.no_grad():
            for number, vector in enumerate(self.flat):
                if vector is not None:
                    self._copy_in(number, vector, [it.detach() for _, it in self.kept[number]])

    def norm(self, norm_type: float) -> float:
        """Of the whole model's gradients: every rank has all of its part's."""
        factor = 1.0 / state.optimizer.loss_scale if state.cfg.fp16 else 1.0
        pairs = [(it, it.grad.float() * factor) for it in self.parameters() if it.grad is not None]
        return float(norms.norm(pairs, norm_type))

    def states(self) -> dict[int, dict[str, Any]]:
        """States of whole parameters; all ranks of the group call this."""
        found: dict[int, dict[str, Any]] = {number: {} for group in self.kept for number, _ in group}
        for at, vector in enumerate(self.flat):
            if vector is None:
                continue
            values = {**self.user.state.get(vector, {}), MASTER: vector.detach()}
            for name, value in values.items():
                whole = isinstance(value, torch.Tensor) and value.shape == vector.shape
                parts = self._whole(at, value) if whole else [value] * len(self.kept[at])
                for (number, _), part in zip(self.kept[at], parts, strict=True):
                    found[number][name] = part
        return found

    def put(self, states: dict[int, dict[str, Any]], local: bool = False) -> None:
        """Sets this rank's part of the states."""
        with torch.no_grad():
            for at, vector in enumerate(self.flat):
                if vector is None:
                    continue
                each = [states.get(number, {}) for number, _ in self.kept[at]]
                self._copy_in(
                    at, vector, [it.get(MASTER, own.detach()) for it, (_, own) in zip(each, self.kept[at], strict=True)]
                )
                names = [name for name in dict.fromkeys(name for it in each for name in it) if name != MASTER]
                if not names:
                    continue
                kept = self.user.state[vector] = {}
                for name in names:
                    values = [it.get(name) for it in each]
                    shaped = all(
                        isinstance(v, torch.Tensor) and v.numel() == own.numel() and v.shape == own.shape
                        for v, (_, own) in zip(values, self.kept[at], strict=True)
                    )
                    if shaped and name != "step":
                        kept[name] = torch.zeros_like(vector)
                        self._copy_in(at, kept[name], values)
                    else:
                        kept[name] = next((v for v in values if v is not None), None)

    def shards(self) -> list[dict[str, Any]]:
        """This rank's shard of each group's states."""
        return [{} if it is None else {**self.user.state.get(it, {}), MASTER: it.detach()} for it in self.flat]

    def put_shards(self, shards: list[dict[str, Any]]) -> None:
        """Sets the shards, on the same ranks with the same groups."""
        with torch.no_grad():
            for vector, found in zip(self.flat, shards, strict=True):
                if vector is None:
                    continue
                found = dict(found)
                vector.copy_(found.pop(MASTER))
                if found:
                    self.user.state[vector] = {name: _like(value, vector) for name, value in found.items()}


def _like(value: Any, it: torch.Tensor, local: bool = False) -> Any:
    """A state's value for a parameter: on its device, as a DTensor where it is one; counters
    stay as they are.
    """
    if not isinstance(value, torch.Tensor):
        return value
    if isinstance(value, DTensor) or value.dim() == 0:
        return value.clone()
    if isinstance(it, DTensor):
        if not local:
            return distribute_tensor(value.to(it.device), it.device_mesh, it.placements)
        return DTensor.from_local(
            value.to(it.device), it.device_mesh, it.placements, shape=it.shape, stride=it.stride()
        )
    return value.to(it.device, copy=True)
