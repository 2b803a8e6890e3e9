"""PyTorch's FullyShardedDataParallel as SageMaker's build of torch has it: it shards over
`hybrid_shard_degree` ranks, and takes `post_param_init_fn`.
"""

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, ShardingStrategy, StateDictType
from torch.distributed.fsdp import _init_utils as initialization
from torch.distributed.tensor import DTensor

from torch.sagemaker.world import state

__all__ = ["install", "placement"]

#: The functions of the constructors that run, outermost first: what one makes within has its own
#: units.
_after: list[Callable[[nn.Module], None]] = []


def placement(strategy: ShardingStrategy | None) -> dict[str, Any]:
    """Arguments of FSDP's constructor that replace the script's strategy; none where the
    script's applies.
    """
    if not state.is_initialized or state.cfg.is_native():
        return {}
    if state.cfg.shards(state.world_size) == 1:
        if state.tp_size == 1:
            return {"sharding_strategy": ShardingStrategy.NO_SHARD}
        return {"sharding_strategy": ShardingStrategy.NO_SHARD, "device_mesh": state.mesh["rep"]}
    zero2 = ShardingStrategy._HYBRID_SHARD_ZERO2
    chosen = strategy if strategy is zero2 else ShardingStrategy.HYBRID_SHARD
    if state.tp_size == 1:
        return {
            "sharding_strategy": chosen,
            "process_group": (state.mesh.get_group("shard"), state.mesh.get_group("rep")),
        }
    return {"sharding_strategy": chosen, "device_mesh": state.mesh["rep", "shard"]}


def install() -> None:
    """Makes the constructors of FSDP and of FullStateDictConfig what scripts for this library
    expect. Once is enough.
    """
    if getattr(FullyShardedDataParallel.__init__, "of_torch_sagemaker", False):
        return
    FullyShardedDataParallel.__init__ = _fsdp(FullyShardedDataParallel.__init__)
    FullStateDictConfig.__init__ = _full_state_dict_config(FullStateDictConfig.__init__)
    initialization._materialize_with_param_init_fn = _materialize(initialization._materialize_with_param_init_fn)
    check = initialization._check_module_states_for_sync_module_states
    initialization._check_module_states_for_sync_module_states = _unless_on_cpu(check)


def _fsdp(constructor):
    signature = inspect.signature(constructor)

    @functools.wraps(constructor)
    def init(self, *arguments, post_param_init_fn=None, **named):
        given = signature.bind(self, *arguments, **named).arguments
        # Units within a model are given what the model was.
        if given.get("process_group") is None and given.get("device_mesh") is None:
            given.update(placement(given.get("sharding_strategy")))
        if given.get("device_id") is None and not torch.cuda.is_available():
            given["device_id"] = torch.device("cpu")
        if given.get("use_orig_params") and _has_whole_shards(given):
            # FSDP of one rank, or without shards, takes a DTensor for its local part when it looks
            # for changed parameters.
            what = "torch.sagemaker: use_orig_params is set to False"
            warnings.warn(
                f"{what}: FSDP cannot keep the original parameters of a tensor parallel model that it does not shard",
                stacklevel=2,
            )
            given["use_orig_params"] = False
        if post_param_init_fn is not None:
            _after.append(post_param_init_fn)
        try:
            constructor(**given)
        finally:
            if post_param_init_fn is not None:
                _after.pop()
        if state.is_initialized and state.tp_size > 1:
            self._register_state_dict_hook(_full_tensors)

    init.of_torch_sagemaker = True
    init.__signature__ = signature
    return init


def _has_whole_shards(given: dict[str, Any]) -> bool:
    if not state.is_initialized or state.tp_size == 1:
        return False
    mesh = given.get("device_mesh")
    return given.get("sharding_strategy") is ShardingStrategy.NO_SHARD or (
        mesh is not None and mesh.size(mesh.ndim - 1) == 1
    )


def _full_tensors(module, state_dict, _prefix, _metadata):
    """Full state dicts have whole parameters, also of tensor ranks: all ranks of a tensor group
    ask for them together.
    """
    if module._state_dict_type is StateDictType.FULL_STATE_DICT:
        for name, it in state_dict.items():
            if isinstance(it, DTensor):
                state_dict[name] = it.full_tensor()


def _materialize(function):
    @functools.wraps(function)
    def materialize(root_module, *arguments, **named):
        function(root_module, *arguments, **named)
        # Parameters are whole here, and not yet parts of a flat one: the place to tie them.
        if _after:
            _after[-1](root_module)

    return materialize


def _unless_on_cpu(function):
    """FSDP refuses `sync_module_states` for modules on the CPU, as some backends could not
    broadcast from there.
    """

    @functools.wraps(function)
    def check(module_states):
        if torch.cuda.is_available():
            function(module_states)

    return check


def _full_state_dict_config(constructor):
    @functools.wraps(constructor)
    def init(self, *arguments, translate_on_save: bool = True, **named):
        # Keys are always those of the model before `transform`.
        constructor(self, *arguments, **named)
        self.translate_on_save = translate_on_save

    return init
