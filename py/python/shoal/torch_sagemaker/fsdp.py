"""PyTorch's FullyShardedDataParallel as SageMaker's build of torch has it: `hybrid_shard_degree` decides among whom it shards, and it takes
`post_param_init_fn`."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp import _init_utils as initialization

from torch.sagemaker.world import state

__all__ = ["install", "placement"]

#: The functions of the constructors that run, outermost first: what one makes within has its own units.
_after: list[Callable[[nn.Module], None]] = []


def placement(strategy: ShardingStrategy | None) -> dict[str, Any]:
    """What FSDP is given in place of the script's strategy: arguments of its constructor; none where it does what the script says."""
    if not state.is_initialized or state.cfg.is_native():
        return {}
    if state.cfg.shards(state.world_size) == 1:
        if state.tp_size == 1:
            return {"sharding_strategy": ShardingStrategy.NO_SHARD}
        return {"sharding_strategy": ShardingStrategy.NO_SHARD, "device_mesh": state.mesh["rep"]}
    zero2 = ShardingStrategy._HYBRID_SHARD_ZERO2
    chosen = strategy if strategy is zero2 else ShardingStrategy.HYBRID_SHARD
    if state.tp_size == 1:
        return {"sharding_strategy": chosen, "process_group": (state.mesh.get_group("shard"), state.mesh.get_group("rep"))}
    return {"sharding_strategy": chosen, "device_mesh": state.mesh["rep", "shard"]}


def install() -> None:
    """Makes the constructors of FSDP and of FullStateDictConfig what scripts for this library expect. Once is enough."""
    if getattr(FullyShardedDataParallel.__init__, "of_torch_sagemaker", False):
        return
    FullyShardedDataParallel.__init__ = _fsdp(FullyShardedDataParallel.__init__)
    FullStateDictConfig.__init__ = _full_state_dict_config(FullStateDictConfig.__init__)
    initialization._materialize_with_param_init_fn = _materialize(initialization._materialize_with_param_init_fn)


def _fsdp(constructor):
    @functools.wraps(constructor)
    def init(self, module, process_group=None, sharding_strategy=None, *others, post_param_init_fn=None, **named):
        # Units within a model are given what the model was.
        if process_group is None and named.get("device_mesh") is None and len(others) < 13:
            placed = placement(sharding_strategy)
            process_group = placed.pop("process_group", None)
            sharding_strategy = placed.pop("sharding_strategy", sharding_strategy)
            named.update(placed)
        if len(others) < 7 and named.get("device_id") is None and not torch.cuda.is_available():
            named["device_id"] = torch.device("cpu")
        if post_param_init_fn is not None:
            _after.append(post_param_init_fn)
        try:
            constructor(self, module, process_group, sharding_strategy, *others, **named)
        finally:
            if post_param_init_fn is not None:
                _after.pop()

    init.of_torch_sagemaker = True
    return init


def _materialize(function):
    @functools.wraps(function)
    def materialize(root_module, *arguments, **named):
        function(root_module, *arguments, **named)
        # Parameters are whole here, and not yet parts of a flat one: the place to tie them.
        if _after:
            _after[-1](root_module)

    return materialize


def _full_state_dict_config(constructor):
    @functools.wraps(constructor)
    def init(self, *arguments, translate_on_save: bool = True, **named):
        # Keys are always those of the model before `transform`.
        constructor(self, *arguments, **named)
        self.translate_on_save = translate_on_save

    return init
