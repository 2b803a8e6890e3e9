"""Queries of a distributed model, and its hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch import registry
from smdistributed.modelparallel.torch.exceptions import SMPRuntimeError, SMPUnsupportedError
from smdistributed.modelparallel.torch.reduce import Reducer
from smdistributed.modelparallel.torch.state_mod import state

__all__ = ["Facts", "Handle"]


class Handle:
    """Removes a hook."""

    def __init__(self, hooks: list, hook: Callable) -> None:
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        """Removes the hook."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


class Facts:
    """Queries and hooks of `DistributedModel`."""

    module: nn.Module
    partitioned: bool
    overlapping_allreduce: bool
    _partition_hooks: list[Callable]
    _step_hooks: list[Callable]
    _reducer: Reducer | None
    _comm_hook: tuple[Any, Callable] | None

    def register_post_partition_hook(self, hook: Callable[[Any, Any], None]) -> Handle:
        """`hook(model, optimizer)` is called when the model is partitioned, at the first step if
        it is already.
        """
        if self.partitioned:
            # With one stage the model is partitioned when it is made, before hooks are registered.
            self._late_hooks().append(hook)
            return Handle(self._late_hooks(), hook)
        self._partition_hooks.append(hook)
        return Handle(self._partition_hooks, hook)

    def _late_hooks(self) -> list:
        return self.__dict__.setdefault("_late", [])

    def run_late_hooks(self) -> None:
        """Runs hooks that waited for the optimizer, at the begin of the first step."""
        hooks, self.__dict__["_late"] = self._late_hooks(), []
        for hook in hooks:
            hook(self, state.optimizer)

    def register_post_step_hook(self, hook: Callable[[Any, Any], None]) -> Handle:
        """`hook(model, optimizer)` is called after each call of a step function."""
        self._step_hooks.append(hook)
        return Handle(self._step_hooks, hook)

    def register_comm_hook(self, hook_state: Any, hook: Callable[[Any, Any], torch.futures.Future]) -> None:
        """`hook(state, bucket)` gives a future of the bucket's reduced vector; it averages over
        data parallel ranks and over microbatches itself.
        """
        if not state.cfg.ddp or not self.overlapping_allreduce:
            raise SMPRuntimeError("register_comm_hook needs ddp in the configuration and overlapping_allreduce=True")
        self._comm_hook = (hook_state, hook)
        if self._reducer is not None:
            self._reducer.hook_state, self._reducer.hook = hook_state, hook

    def join(self, *_: Any, **__: Any) -> Any:
        """Not offered."""
        raise SMPUnsupportedError(
            "DistributedModel.join: uneven inputs are not offered with microbatches; give all ranks equally many batches (drop_last=True)"
        )

    def get_module(self) -> nn.Module:
        """The user's module."""
        return self.module

    def distributed_modules(self) -> Iterator[nn.Module]:
        """The modules that tensor parallel ranks share."""
        return (it for it in self.module.modules() if isinstance(it, registry.Distributed))

    def is_distributed_parameter(self, it: torch.Tensor) -> bool:
        """Whether tensor parallel ranks have parts of the parameter."""
        return registry.axis_of(it) is not None

    is_distributed_buffer = is_distributed_parameter

    def is_scaled_batch_parameter(self, it: torch.Tensor) -> bool:
        """Whether the parameter sees the samples of all ranks of the tensor parallel group."""
        return registry.is_scaled(it)

    is_scaled_batch_buffer = is_scaled_batch_parameter

    def default_reducer_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters that are averaged over data parallel ranks."""
        return ((name, it) for name, it in self.named_parameters() if registry.axis_of(it) is None)

    def scaled_batch_reducer_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters that are averaged over ranks with the same part."""
        return ((name, it) for name, it in self.named_parameters() if registry.axis_of(it) is not None)
