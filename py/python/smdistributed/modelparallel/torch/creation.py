"""`with` blocks around the creation of modules: the partition, tensor parallelism, parameters
without storage.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch.deferred import recording
from smdistributed.modelparallel.torch.exceptions import InvalidPartitionError
from smdistributed.modelparallel.torch.state_mod import state

__all__ = [
    "delay_param_initialization",
    "model_creation",
    "partition",
    "set_partition",
    "set_tensor_parallelism",
    "tensor_parallelism",
]

STAGE, TENSOR = "_smp_stage", "_smp_tensor"
_now: dict[str, Any] = {}
_plain_init = nn.Module.__init__


@wraps(_plain_init)
def _init(self: nn.Module, *args: Any, **kwargs: Any) -> None:
    _plain_init(self, *args, **kwargs)
    for name, value in _now.items():
        object.__setattr__(self, name, value)


@contextmanager
def _marked(name: str, value: Any) -> Iterator[None]:
    before = dict(_now)
    _now[name] = value
    nn.Module.__init__ = _init
    try:
        yield
    finally:
        _now.clear()
        _now.update(before)
        if not _now:
            nn.Module.__init__ = _plain_init


def _stage(number: int) -> int:
    stages = state.cfg.pipeline_parallel_degree
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < stages:
        raise InvalidPartitionError(
            f"partition {number!r}: there are partitions 0 to {stages - 1} (pipeline_parallel_degree {stages})"
        )
    return number


def partition(number: int) -> Any:
    """Modules that are made in this block are on that partition; the innermost block wins.
    Without effect under `auto_partition`.
    """
    return _marked(STAGE, _stage(number))


def set_partition(module: nn.Module, number: int) -> None:
    """Puts a module on that partition, before the first step. Without effect under
    `auto_partition`.
    """
    object.__setattr__(module, STAGE, _stage(number))


def tensor_parallelism(enabled: bool = True, **settings: Any) -> Any:
    """Modules that are made in this block are distributed over tensor parallel ranks, where
    there is a distributed form of their class and their sizes fit. `settings` override arguments
    of that form.
    """
    return _marked(TENSOR, settings if enabled else None)


def set_tensor_parallelism(module: nn.Module, enabled: bool = True, **settings: Any) -> None:
    """The same for an existing module and its submodules."""
    for it in module.modules():
        object.__setattr__(it, TENSOR, settings if enabled else None)


@contextmanager
def delay_param_initialization(enabled: bool = True) -> Iterator[None]:
    """Modules that are made in this block have no storage until they are partitioned; then each
    rank makes its own part with the values that it would have had.
    """
    if not enabled:
        yield
        return
    with recording():
        yield


@contextmanager
def model_creation(
    tensor_parallelism: bool = False, dtype: torch.dtype | None = None, **settings: Any
) -> Iterator[None]:
    """`tensor_parallelism` and, if the configuration asks for it, `delay_param_initialization`
    in one; `dtype`: that of parameters.
    """
    with ExitStack() as stack:
        if dtype is not None:
            before = torch.get_default_dtype()
            torch.set_default_dtype(dtype)
            stack.callback(torch.set_default_dtype, before)
        stack.enter_context(_marked(TENSOR, settings if tensor_parallelism else None))
        stack.enter_context(delay_param_initialization(state.cfg.delayed_parameter_initialization))
        yield
