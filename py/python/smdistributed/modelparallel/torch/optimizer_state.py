"""States of optimizers as dictionaries: of this rank's part, and of the whole model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from smdistributed.modelparallel.torch import ranks, registry
from smdistributed.modelparallel.torch.masters import Shards
from smdistributed.modelparallel.torch.model_state import PARTIAL, narrow, whole
from smdistributed.modelparallel.torch.state_mod import state

if TYPE_CHECKING:
    from smdistributed.modelparallel.torch.optimizer import _Core

__all__ = ["exported", "gathered", "imported"]

SHARD = "_smp_is_shard"


def _settings(core: _Core) -> list[dict[str, Any]]:
    found, number = [], 0
    for group, given in zip(core.user.param_groups, core.given, strict=True):
        own = {name: value for name, value in group.items() if name != "params"}
        found.append({**own, "params": list(range(number, number + len(given)))})
        number += len(given)
    return found


def _host(value: Any) -> Any:
    if isinstance(value, DTensor):
        value = value.to_local()
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value


def exported(core: _Core, gather_if_shard: bool) -> dict[str, Any]:
    """The state of this rank's part; with sharded data parallelism, of its shards."""
    core.need_partition("state_dict")
    base = {"param_groups": _settings(core), "loss_scaler": core.scaler.state_dict(), PARTIAL: True}
    if isinstance(core.groups, Shards) and not gather_if_shard:
        return {
            "state": [{name: _host(it) for name, it in shard.items()} for shard in core.groups.shards()],
            SHARD: True,
            **base,
        }
    states = core.groups.states()
    return {"state": {number: {name: _host(it) for name, it in one.items()} for number, one in states.items()}, **base}


def gathered(core: _Core, local: dict[str, Any]) -> dict[str, Any]:
    """The whole model's state, gathered from all ranks."""
    parameters = {number: it for group in core.groups.kept for number, it in group}
    states: dict[int, dict[str, Any]] = {}
    current = core.groups.states() if state.cfg.sharded_data_parallel_degree > 1 else {}
    for number, one in local["state"].items():
        it = parameters[number]
        axis = registry.axis_of(it)
        states[number] = {}
        for name, value in one.items():
            if number in current and isinstance(current[number][name], DTensor):
                value = whole(current[number][name], None)
            elif isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape == it.shape:
                value = whole(value.to(it.device), axis)
            states[number][name] = value
    if ranks.pp_size() > 1:
        parts: list[Any] = [None] * ranks.pp_size()
        dist.all_gather_object(parts, states, state.groups.of["pp"])
        states = {number: one for part in parts for number, one in part.items()}
    return {
        "state": dict(sorted(states.items())),
        "param_groups": local["param_groups"],
        "loss_scaler": local["loss_scaler"],
    }


def imported(core: _Core, found: dict[str, Any]) -> None:
    """Loads the state of the whole model or of this rank's part. Raises ValueError for other
    groups, as torch does.
    """
    if not core.partitioned:
        core.pending = found
        return
    groups = found["param_groups"]
    if [len(it["params"]) for it in groups] != [len(it) for it in core.given]:
        raise ValueError(
            f"loaded state dict has groups of {[len(it['params']) for it in groups]} parameters, the optimizer of {[len(it) for it in core.given]}: they do not fit"
        )
    for group, stored in zip(core.user.param_groups, groups, strict=True):
        group.update({name: value for name, value in stored.items() if name != "params"})
    if "loss_scaler" in found:
        core.scaler.load_state_dict(found["loss_scaler"])
    if found.get(SHARD):
        if not isinstance(core.groups, Shards):
            raise ValueError(
                "loaded state dict is a shard of an optimizer's state: it needs shard_optimizer_state and the same ranks"
            )
        core.groups.put_shards(found["state"])
        core.groups.give_back()
        return
    states = found["state"]
    if not found.get(PARTIAL):
        own: dict[int, dict[str, Any]] = {}
        for group in core.groups.kept:
            for number, it in group:
                if number in states:
                    axis = registry.axis_of(it)
                    tensor = lambda v: isinstance(v, torch.Tensor) and v.dim() > 0  # noqa: E731
                    own[number] = {name: narrow(v, axis) if tensor(v) else v for name, v in states[number].items()}
        states = own
    core.groups.put(states, local=bool(found.get(PARTIAL)))
