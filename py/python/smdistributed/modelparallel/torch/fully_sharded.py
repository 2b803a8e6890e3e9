"""Sharded data parallelism: PyTorch's `fully_shard` (FSDP2) under the keys of SageMaker's
configuration.

Parameters, gradients and optimizer states are shards over `sharded_data_parallel_degree`
neighbouring data parallel ranks; groups of such ranks are replicas.
`sdp_param_persistence_threshold`: modules with fewer elements are not gathered by themselves, but
with the module around them; buckets of gathers and reductions are whole modules, so the other keys
of sizes say nothing more.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from smdistributed.modelparallel.torch import norms, ranks
from smdistributed.modelparallel.torch.state_mod import state

__all__ = ["clip", "from_local", "shard", "split"]


def mesh() -> DeviceMesh:
    """Data parallel ranks as replicas of shards."""
    degree, device = state.cfg.sharded_data_parallel_degree, "cuda" if torch.cuda.is_available() else "cpu"
    data = torch.tensor(ranks.members("rdp"))
    if degree == len(data):
        return DeviceMesh(device, data, mesh_dim_names=("shard",))
    return DeviceMesh(device, data.view(-1, degree), mesh_dim_names=("replicate", "shard"))


def shard(module: nn.Module) -> None:
    """Shards the module in place: children of containers are gathered one after the other, what
    is left with the root.
    """
    cfg = state.cfg
    dtype = torch.float16 if cfg.fp16 else torch.bfloat16 if cfg.bf16 else None
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32 if dtype is not None else None)
    options: dict[str, Any] = {"mesh": mesh(), "mp_policy": policy}
    threshold = min(cfg.sdp_param_persistence_threshold, sum(it.numel() for it in module.parameters()) // 8)
    owners: dict[int, set[int]] = {}
    for it in module.modules():
        for parameter in it._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), set()).add(id(it))
        # Weights that a module reads outside of their own module's forward pass have to be gathered
        # with the reader's.
        for name in getattr(it, "reads_weights_of", ()):
            for parameter in getattr(it, name).parameters():
                owners.setdefault(id(parameter), set()).add(id(it))

    def apply(it: nn.Module) -> None:
        for child in it.children():
            parameters = list(child.parameters())
            inside = {id(x) for x in child.modules()}
            tied = any(not owners[id(x)] <= inside for x in parameters)
            if tied or any(isinstance(x, (nn.ModuleList, nn.Sequential)) for x in child.modules()):
                apply(child)
            elif sum(x.numel() for x in parameters) > threshold:
                fully_shard(child, **options)

    apply(module)
    fully_shard(module, **options)


def clip(module: nn.Module) -> None:
    """Clips gradients by their norm, as the configuration says."""
    most = state.cfg.sdp_gradient_clipping
    if most > 0 and not state.cfg.fp16:
        norms.clip(list(module.parameters()), most, 2.0)


def split(given: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """Shards of whole tensors."""
    found = {}
    for name, it in given.items():
        own = like[name]
        if isinstance(own, DTensor):
            it = distribute_tensor(it.to(own.device, own.dtype), own.device_mesh, own.placements)
        found[name] = it
    return found


def from_local(given: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """Tensors from this rank's stored shards."""
    found = {}
    for name, it in given.items():
        own = like.get(name)
        if isinstance(own, DTensor) and not isinstance(it, DTensor):
            it = DTensor.from_local(
                it.to(own.dtype), own.device_mesh, own.placements, shape=own.shape, stride=own.stride()
            )
        found[name] = it
    return found


def is_first_replica() -> bool:
    """Whether this rank's shards are those that are saved."""
    return dist.get_rank(state.groups.of["rdp"]) < state.cfg.sharded_data_parallel_degree
