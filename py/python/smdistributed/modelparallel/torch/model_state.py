"""A distributed model's state: this rank's part, and the whole by a gather."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from smdistributed.modelparallel.torch import fully_sharded, norms, ranks, registry
from smdistributed.modelparallel.torch.state_mod import state

__all__ = ["PARTIAL", "States", "narrow", "whole"]

#: The key that marks a state as a rank's part.
PARTIAL = "_smp_is_partial"


def whole(it: torch.Tensor, axis: int | None) -> torch.Tensor:
    """Gathers the whole of a tensor of which this rank has a part, on the CPU; all ranks of its
    tensor parallel group call this.
    """
    it = it.full_tensor() if isinstance(it, DTensor) else it
    it = it.detach()
    if axis is None or ranks.tp_size() == 1:
        return it.cpu().clone()
    parts = [torch.empty_like(it, memory_format=torch.contiguous_format) for _ in range(ranks.tp_size())]
    dist.all_gather(parts, it.contiguous(), state.groups.of["tp"])
    return torch.cat(parts, axis).cpu()


def narrow(it: torch.Tensor, axis: int | None) -> torch.Tensor:
    """This rank's part of a whole tensor."""
    return it if axis is None or ranks.tp_size() == 1 else it.chunk(ranks.tp_size(), axis)[ranks.tp_rank()]


class States:
    """Names are those of the user's module."""

    module: nn.Module
    partitioned: bool

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """This rank's part once the model is partitioned, before that all."""
        return self.module.named_parameters(prefix, recurse, remove_duplicate)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """This rank's part once the model is partitioned, before that all."""
        return self.module.named_buffers(prefix, recurse, remove_duplicate)

    def local_named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters of this rank's part."""
        return self.module.named_parameters(prefix, recurse)

    def local_parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Parameters of this rank's part."""
        return self.module.parameters(recurse)

    def local_named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, torch.Tensor]]:
        """Buffers of this rank's part."""
        return self.module.named_buffers(prefix, recurse)

    def local_buffers(self, recurse: bool = True) -> Iterator[torch.Tensor]:
        """Buffers of this rank's part."""
        return self.module.buffers(recurse)

    def local_named_modules(self, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
        """Modules of this rank's part."""
        stage = ranks.pp_rank()
        for name, it in self.module.named_modules():
            if not self.partitioned or self.stages[name] == stage:
                yield (f"{prefix}.{name}" if prefix and name else prefix or name), it

    def local_modules(self) -> Iterator[nn.Module]:
        """Modules of this rank's part."""
        return (it for _, it in self.local_named_modules())

    def local_state_dict(self, *, cast_to_cpu: bool = True) -> dict[str, Any]:
        """This rank's part, with a key that says so. Parts of sharded data parallel ranks are as
        each rank has them.
        """
        found: dict[str, Any] = OrderedDict()
        for name, it in self.module.state_dict().items():
            if not isinstance(it, torch.Tensor):
                found[name] = it
                continue
            it = it.to_local() if isinstance(it, DTensor) else it
            found[name] = it.detach().cpu().clone() if cast_to_cpu else it.detach()
        found[PARTIAL] = True
        return found

    def _axes(self) -> dict[str, int | None]:
        return {
            name: registry.axis_of(it)
            for name, it in (
                *self.module.named_parameters(remove_duplicate=False),
                *self.module.named_buffers(remove_duplicate=False),
            )
        }

    def state_dict(self, *args: Any, gather_to_rank0: bool = False, **kwargs: Any) -> dict[str, Any]:
        """The whole model, on the CPU. All ranks of a model parallel group call this; with
        `gather_to_rank0` only its first one gets it, the others an empty dict.
        """
        axes = self._axes()
        own = OrderedDict()
        for name, it in self.module.state_dict().items():
            own[name] = whole(it, axes.get(name)) if isinstance(it, torch.Tensor) else it
        if ranks.pp_size() == 1 or not self.partitioned:
            return own if not gather_to_rank0 or ranks.tp_rank() == 0 else OrderedDict()
        group = state.groups.of["pp"]
        parts: list[Any] = [None] * ranks.pp_size()
        if not gather_to_rank0:
            dist.all_gather_object(parts, own, group)
        elif ranks.tp_rank() == 0:
            dist.gather_object(own, parts if ranks.pp_rank() == 0 else None, group=group, group_dst=0)
            if ranks.pp_rank() != 0:
                return OrderedDict()
        else:
            return OrderedDict()
        merged: dict[str, Any] = OrderedDict()
        for part in parts:
            merged.update(part)
        order = {name: at for at, name in enumerate(self.order)}
        return OrderedDict(sorted(merged.items(), key=lambda it: order.get(it[0], len(order))))

    def load_state_dict(
        self, state_dict: dict[str, Any], strict: bool = True, same_partition_load: bool = False
    ) -> Any:
        """Loads a whole state, or this rank's part of it. Before the model is partitioned, the
        state is kept until then.

        Raises RuntimeError, as torch does, for keys and shapes that do not fit.
        """
        if not self.partitioned:
            self._pending = (state_dict, strict, same_partition_load)
            return None
        given = {name: it for name, it in state_dict.items() if name != PARTIAL}
        if not (state_dict.get(PARTIAL) or same_partition_load):
            axes = self._axes()
            local = self.module.state_dict()
            unknown = [name for name in given if name not in local and name not in self.elsewhere]
            missing = [name for name in local if name not in given]
            if strict and (unknown or missing):
                lines = [
                    f"{what} key(s): {', '.join(map(repr, names))}"
                    for what, names in (("Missing", missing), ("Unexpected", unknown))
                    if names
                ]
                raise RuntimeError("Error(s) in loading state_dict for DistributedModel: " + "; ".join(lines))
            given = {
                name: narrow(it, axes.get(name)) if isinstance(it, torch.Tensor) else it
                for name, it in given.items()
                if name in local
            }
            if state.cfg.sharded_data_parallel_degree > 1:
                given = fully_sharded.split(given, local)
        elif state.cfg.sharded_data_parallel_degree > 1:
            given = fully_sharded.from_local(given, self.module.state_dict())
        with torch.no_grad():
            found = self.module.load_state_dict(given, strict=strict)
        if state.optimizer is not None:
            state.optimizer.refresh()
        return found

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clips the gradients by the norm of the whole model's; returns it."""
        return norms.clip(list(self.module.parameters()), max_norm, norm_type)
