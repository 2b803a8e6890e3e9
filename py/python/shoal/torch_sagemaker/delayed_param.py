"""Models that are built on the meta device and get their parameters unit by unit, when FSDP
shards them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.weak import WeakTensorKeyDictionary

from torch.sagemaker.logger import get_logger
from torch.sagemaker.utils.module_utils import default_device, fresh_parameters, move_buffers_to_device
from torch.sagemaker.world import state

__all__ = ["DelayedParamIniter"]


class DelayedParamIniter:
    """Initialises the parameters of a model that is on the meta device; give FSDP
    `param_init_fn=it.get_param_init_fn()`.

    `init_method_using_config(module)` makes and fills the parameters of one module, without those
    of its children. Without it, modules are initialised as Hugging Face's are (normal with
    `config.initializer_range`, norms 1 and 0), others by their `reset_parameters`. Parameters that
    modules share stay shared within an FSDP unit.
    """

    def __init__(
        self,
        model: nn.Module,
        init_method_using_config: Callable[[nn.Module], None] | None = None,
        verbose: bool = False,
    ) -> None:
        self._model = model
        self._given = init_method_using_config
        self._verbose = verbose
        self._std = getattr(getattr(model, "config", None), "initializer_range", None)
        self._wanted = sum(it.numel() for it in model.parameters())
        self._inited = 0
        # Holds none of them: FSDP frees what it has sharded.
        self._counted = WeakTensorKeyDictionary()

    def get_param_init_fn(self) -> Callable[[nn.Module], None]:
        """FSDP's `param_init_fn`."""
        return self._init

    def get_post_param_init_fn(self) -> Callable[[nn.Module], None]:
        """FSDP's `post_param_init_fn` (after `torch.sagemaker.init()`): calls the module's
        `tie_weights`, if it has one.
        """
        return _tie

    def count_num_params(self, module: nn.Module, *args: nn.Parameter) -> None:
        """Counts the parameters of a module, and those given, as initialised."""
        for it in [*module.parameters(recurse=False), *args]:
            if it not in self._counted:
                self._counted[it] = True
                self._inited += it.numel()

    @contextmanager
    def validate_params_and_buffers_inited(self, enabled: bool = True) -> Iterator[None]:
        """Raises `AssertionError` at its end if parameters were left out, or something is on the
        meta device still.
        """
        before = self._inited
        yield
        if not enabled:
            return
        done, left = self._inited - before, self._left()
        assert not left, (
            f"still on the meta device after the initialisation: {', '.join(left)}; initialise them in init_method_using_config"
        )
        assert done == self._wanted, (
            f"{done} elements of parameters were initialised where the model has {self._wanted}; is each module covered, and only once?"
        )

    def _left(self) -> list[str]:
        named = [*self._model.named_parameters(), *self._model.named_buffers()]
        return [name for name, it in named if it.is_meta]

    def _init(self, module: nn.Module) -> None:
        if self._verbose:
            get_logger().info("initialises %s", type(module).__name__)
        if self._given is not None:
            self._given(module)
        else:
            self._fill(module, default_device())
        self.count_num_params(module)

    def _fill(self, module: nn.Module, device: torch.device) -> None:
        fresh = fresh_parameters(module, device)
        _recompute_buffers(module, device)
        move_buffers_to_device(module, device)
        if not fresh:
            return
        with torch.no_grad():
            for _, parameter in fresh:
                # Shows what the initialisation leaves out.
                _local(parameter).fill_(float("nan") if parameter.is_floating_point() else 0)
            if any(isinstance(it, DTensor) for _, it in fresh):
                with state.get_rng_state_tracker().fork():
                    self._values(module)
            else:
                self._values(module)
        for name, parameter in fresh:
            if parameter.is_floating_point() and _local(parameter).isnan().any():
                raise ValueError(
                    f"parameter {name} of {type(module).__name__}: DelayedParamIniter does not know how to initialise it; "
                    "give DelayedParamIniter(model, init_method_using_config=function) that fills the parameters of one module"
                )

    def _values(self, module: nn.Module) -> None:
        kind = type(module).__name__
        parameters = dict(module.named_parameters(recurse=False))
        if self._std is not None and (isinstance(module, (nn.Linear, nn.Embedding)) or kind == "Conv1D"):
            _local(module.weight).normal_(0.0, self._std)
            if parameters.get("bias") is not None:
                _local(module.bias).zero_()
            if getattr(module, "padding_idx", None) is not None:
                module.weight[module.padding_idx].zero_()
        elif hasattr(module, "reset_parameters"):
            module.reset_parameters()
        elif "Norm" in kind:
            for name, it in parameters.items():
                _local(it).fill_(1.0 if name == "weight" else 0.0)
        elif hasattr(self._model, "_init_weights"):
            self._model._init_weights(module)


def _local(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _tie(module: nn.Module) -> None:
    tie = getattr(module, "tie_weights", None)
    if callable(tie):
        tie()


def _recompute_buffers(module: nn.Module, device: torch.device) -> None:
    """Buffers that a module computes from its configuration, as rotary embeddings do."""
    if not any(it.is_meta for it in module.buffers(recurse=False)):
        return
    config = getattr(module, "config", None)
    if config is not None and not any(True for _ in module.parameters()):
        with torch.device(device):
            new = type(module)(config)
        for name, it in new.named_buffers(recurse=False):
            module._buffers[name] = it
    elif hasattr(module, "reset_running_stats"):
        for name, it in list(module.named_buffers(recurse=False)):
            module._buffers[name] = torch.empty_like(it, device=device)
        module.reset_running_stats()
