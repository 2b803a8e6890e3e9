"""`torch.sagemaker.transform`: tensor parallelism of Hugging Face's transformers by PyTorch's
DTensor.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from torch.sagemaker.layers import FAMILIES, Family, family_of, layers_of, marked
from torch.sagemaker.moe.moe_config import MoEConfig
from torch.sagemaker.utils.module_utils import default_device
from torch.sagemaker.world import state

__all__ = ["is_tensor_sharded", "transform"]

_SHARDED = "_of_torch_sagemaker_sharded"

#: Attributes of attention modules that count what is shared out among tensor ranks.
_COUNTS = ("num_heads", "num_attention_heads", "num_key_value_heads", "hidden_size", "embed_dim", "all_head_size")


def transform(
    model: nn.Module,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
    config: Mapping[str, Any] | MoEConfig | None = None,
    load_state_dict_from_rank0: bool = False,
    cp_comm_type: str = "p2p",
) -> nn.Module:
    """Prepares a model for FSDP; all ranks call it, after `init` and before FSDP. Gives the model
    itself.

    Without tensor parallelism the model stays as it is, apart from `device` (not for models on the
    meta device) and `dtype`. With it, linear layers of Llama, Mistral and GPT-NeoX shaped
    transformers are shared out among tensor ranks; names in state dicts stay those of Hugging Face,
    and parameters that stay whole become those of each tensor group's first rank.
    `load_state_dict_from_rank0`: ranks of the first tensor group get rank 0's values, and may have
    the model on the meta device; FSDP(sync_module_states=True) gives them to the others.

    Raises `NotImplementedError` for expert and context parallelism and for models of other shapes,
    `ValueError` for degrees that do not divide heads or columns.
    """
    cfg = state.cfg
    if not isinstance(model, nn.Module):
        raise TypeError(f"torch.sagemaker.transform: the model is a {type(model).__name__}; give an nn.Module")
    if isinstance(config, MoEConfig) or cfg.expert_parallel_degree > 1:
        raise NotImplementedError(
            f"torch.sagemaker.transform: expert parallelism (expert_parallel_degree={cfg.expert_parallel_degree}, MoEConfig) needs SageMaker's closed kernels; set "
            "expert_parallel_degree to 1 and shard the experts by hybrid_shard_degree, or place them by torch.distributed.tensor.parallel.parallelize_module"
        )
    if cp_comm_type not in ("p2p", "all_gather"):
        raise ValueError(f"torch.sagemaker.transform: cp_comm_type={cp_comm_type!r}: it is 'p2p' or 'all_gather'")
    if cfg.context_parallel_degree > 1:
        raise NotImplementedError(
            f"torch.sagemaker.transform: context_parallel_degree={cfg.context_parallel_degree} needs SageMaker's closed attention; set it to 1, and use "
            "torch.distributed.tensor.experimental.context_parallel around the forward and backward pass"
        )
    is_meta = any(it.is_meta for it in model.parameters())
    if load_state_dict_from_rank0 and state.rank == 0 and is_meta:
        raise ValueError(
            "torch.sagemaker.transform: load_state_dict_from_rank0=True, and rank 0 has parameters on the meta device; build the model on the CPU there"
        )
    if device is not None and not is_meta:
        model = model.to(device)
    if dtype is not None:
        model = model.to(dtype)
    layers = layers_of(model)
    if state.tp_size > 1:
        _check(model, layers)
        group = state.ranker.get_tp_groups()[0]
        if load_state_dict_from_rank0 and state.rank in group:
            _materialize(model)
        for _, layer in layers:
            _share(layer, family_of(layer))
        if not any(it.is_meta for it in model.parameters()):
            _replicate(model)
    marked.update(layer for _, layer in layers)
    return model


def is_tensor_sharded(module: nn.Module, name: str) -> bool:
    """Whether each tensor rank has a part of this parameter of the module."""
    return name in getattr(module, _SHARDED, ())


def _check(model: nn.Module, layers: list[tuple[str, nn.Module]]) -> None:
    degree = state.tp_size
    which = " and ".join(it.name for it in FAMILIES)
    if not layers:
        raise NotImplementedError(
            f"torch.sagemaker.transform: tensor_parallel_degree={degree}: {type(model).__name__} has no transformer layers of Hugging Face's shape ({which}); set it to 1, or "
            "call torch.distributed.tensor.parallel.parallelize_module with a plan of your own"
        )
    for name, layer in layers:
        family = family_of(layer)
        if family is None:
            raise NotImplementedError(
                f"torch.sagemaker.transform: tensor_parallel_degree={degree}: layer {name} ({type(layer).__name__}) is not shaped as {which}; set it to 1, or "
                "call torch.distributed.tensor.parallel.parallelize_module with a plan of your own"
            )
        config = getattr(model, "config", None)
        for what in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
            count = getattr(config, what, None)
            if isinstance(count, int) and count % degree:
                valid = [it for it in range(1, state.world_size + 1) if count % it == 0 and state.world_size % it == 0]
                raise ValueError(
                    f"tensor_parallel_degree={degree} does not divide the model's {what}, {count}; nearest valid: {min(valid, key=lambda it: abs(it - degree))}"
                )
        for path in family.outward:
            rows = layer.get_submodule(path).out_features
            if rows % degree:
                raise ValueError(f"tensor_parallel_degree={degree} does not divide the {rows} outputs of {name}.{path}")


def _materialize(model: nn.Module) -> None:
    """Makes room for rank 0's values on the ranks that have none."""
    if state.rank != 0:
        from torch.sagemaker.utils.module_utils import empty_module_params

        empty_module_params(model, default_device(), recurse=True)
        for module in model.modules():
            for name, it in list(module.named_buffers(recurse=False)):
                if it.is_meta:
                    module._buffers[name] = torch.empty_like(it, device=default_device())


def _share(layer: nn.Module, family: Family) -> None:
    attention = layer.get_submodule(family.attention)
    for name in _COUNTS:
        count = getattr(attention, name, None)
        if isinstance(count, int):
            setattr(attention, name, count // state.tp_size)
    plan = {**dict.fromkeys(family.outward, ColwiseParallel()), **dict.fromkeys(family.inward, RowwiseParallel())}
    parallelize_module(layer, state.mesh["tp"], plan)
    for path in (*family.outward, *family.inward):
        module = layer.get_submodule(path)
        # The bias of what is added up is added once, to the sum: each rank has it whole.
        sharded = {"weight": Shard(0), "bias": Shard(0)} if path in family.outward else {"weight": Shard(1)}
        setattr(module, _SHARDED, sharded)
        module.register_load_state_dict_pre_hook(_take_part)


def _take_part(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_others) -> None:
    """Whole parameters, as of full state dicts, become this rank's part of them."""
    mesh = state.mesh["tp"]
    for name in ("weight", "bias"):
        whole = state_dict.get(prefix + name)
        if (
            isinstance(whole, torch.Tensor)
            and not isinstance(whole, DTensor)
            and isinstance(getattr(module, name, None), DTensor)
        ):
            placement = getattr(module, _SHARDED).get(name, Replicate())
            state_dict[prefix + name] = distribute_tensor(whole, mesh, [placement], src_data_rank=None)


def _replicate(model: nn.Module) -> None:
    source = dist.get_global_rank(state.tp_process_group, 0)
    with torch.no_grad():
        for it in [*model.parameters(), *model.buffers()]:
            if not isinstance(it, DTensor):
                dist.broadcast(it.data, source, state.tp_process_group)
