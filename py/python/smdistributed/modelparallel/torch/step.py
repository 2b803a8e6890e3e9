"""`@smp.step`: a function that runs once for each microbatch, and what it returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, update_wrapper
from typing import Any

import torch

from smdistributed.modelparallel.torch import ranks
from smdistributed.modelparallel.torch.exceptions import (
    DistributedModelNotWrappedError,
    MicrobatchError,
    SMPRuntimeError,
    SMPValidationError,
    StepOutputError,
)
from smdistributed.modelparallel.torch.pipeline.engine import Engine
from smdistributed.modelparallel.torch.pipeline.frames import Learned
from smdistributed.modelparallel.torch.pipeline.order import Order, Turns
from smdistributed.modelparallel.torch.state_mod import state

__all__ = ["StepFunction", "StepOutput", "step"]


class StepOutput:
    """A tensor that a step function returned, of each microbatch: `outputs`."""

    def __init__(self, outputs: list[torch.Tensor]) -> None:
        self.outputs = outputs

    def _stack(self) -> torch.Tensor:
        shapes = {tuple(it.shape) for it in self.outputs}
        if len(shapes) > 1:
            raise StepOutputError(
                f"StepOutput: microbatches returned tensors of shapes {', '.join(map(str, sorted(shapes)))}; use .outputs or .concat()"
            )
        return torch.stack(self.outputs)

    def reduce_mean(self) -> torch.Tensor:
        """The mean over microbatches."""
        stacked = self._stack()
        return stacked.mean(0) if stacked.is_floating_point() or stacked.is_complex() else stacked.float().mean(0)

    def reduce_sum(self) -> torch.Tensor:
        """The sum over microbatches."""
        return self._stack().sum(0)

    def concat(self) -> torch.Tensor:
        """The tensors concatenated along the first dimension."""
        if any(it.dim() == 0 for it in self.outputs):
            raise StepOutputError("StepOutput.concat: tensors without a dimension; use .stack()")
        return torch.cat(self.outputs, 0)

    def stack(self) -> torch.Tensor:
        """The tensors stacked along a new first dimension."""
        return self._stack()

    def __repr__(self) -> str:
        return f"StepOutput(microbatches={len(self.outputs)}, shape={tuple(self.outputs[0].shape)})"


def split(value: Any, micro: int, count: int, axis: int, name: str) -> Any:
    """A microbatch's part of an argument: of tensors, also in containers, and of objects with
    `smp_slice`.
    """
    if isinstance(value, torch.Tensor):
        if value.dim() == 0:
            return value
        size = value.shape[axis] if -value.dim() <= axis < value.dim() else None
        if size is None:
            raise SMPValidationError(
                f"step: argument {name!r} has {value.dim()} dimensions and is to be split along {axis}"
            )
        if size % count:
            less = size - size % count
            nearest = f"{less} or {less + count}" if less else f"{count}"
            raise MicrobatchError(
                f"step: argument {name!r} has {size} samples along dimension {axis}, which {count} microbatches do not divide; "
                f"use a batch of {nearest}, drop_last=True, or non_split_inputs"
            )
        return value.narrow(axis, micro * (size // count), size // count)
    if hasattr(value, "smp_slice"):
        return value.smp_slice(count, micro, axis)
    if isinstance(value, torch.nn.Module):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(split(it, micro, count, axis, name) for it in value))
    if isinstance(value, (list, tuple, set)):
        return type(value)(split(it, micro, count, axis, name) for it in value)
    if type(value) is dict or (isinstance(value, Mapping) and hasattr(value, "keys")):
        parts = {key: split(it, micro, count, axis, name) for key, it in value.items()}
        return parts if type(value) is dict else _rebuilt(value, parts)
    return value


def _rebuilt(value: Mapping, parts: dict) -> Any:
    try:
        return type(value)(parts)
    except TypeError:
        return parts


def gathered(results: list[Any], detach: bool) -> Any:
    """The combined results of the microbatches: StepOutputs for tensors, lists for scalars, in
    the same containers.
    """
    first = results[0]
    if isinstance(first, torch.Tensor):
        return StepOutput([it.detach() if detach else it for it in results])
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(gathered(list(it), detach) for it in zip(*results, strict=True)))
    # A torch.Size is a value of each microbatch, like a number.
    if isinstance(first, (list, tuple)) and not isinstance(first, torch.Size):
        # Classes of their own may not take their parts.
        return (tuple if isinstance(first, tuple) else list)(
            gathered(list(it), detach) for it in zip(*results, strict=True)
        )
    if isinstance(first, Mapping):
        parts = {key: gathered([it[key] for it in results], detach) for key in first}
        return parts if type(first) is dict else _rebuilt(first, parts)
    if first is None and all(it is None for it in results):
        return None
    return list(results)


@contextmanager
def _running(count: int):
    if getattr(state, "stepping", False):
        raise SMPRuntimeError("a function under @smp.step calls another one: call it outside")
    state.stepping, state.microbatch_count = True, count
    try:
        yield
    finally:
        state.stepping, state.microbatch_count, state.engine = False, 1, None


class StepFunction:
    """A function under `@smp.step`."""

    def __init__(
        self,
        function: Callable[..., Any],
        non_split_inputs: Sequence[str],
        input_split_axes: Mapping[str, int],
        detach_outputs: bool,
    ) -> None:
        self._function = function
        self._whole = set(non_split_inputs or ())
        self._axes = dict(input_split_axes or {})
        self._detach = detach_outputs
        self._signature = inspect.signature(function)
        names = set(self._signature.parameters)
        takes_all = any(it.kind is it.VAR_KEYWORD for it in self._signature.parameters.values())
        for name in (*self._whole, *self._axes):
            if name not in names and not takes_all:
                raise SMPValidationError(
                    f"step: {function.__name__} has no argument {name!r}; it has {', '.join(sorted(names))}"
                )
        update_wrapper(self, function)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        return partial(self.__call__, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        count = state.cfg.microbatches
        model = state.model
        if model is None:
            raise DistributedModelNotWrappedError(
                "step: there is no model yet; wrap it with smp.DistributedModel before the first step"
            )
        batches = [self._arguments(args, kwargs, micro, count) for micro in range(count)]

        def body(micro: int) -> Any:
            own_args, own_kwargs = batches[micro]
            result = self._function(*own_args, **own_kwargs)
            batches[micro] = None
            return result

        with _running(count):
            model.prepare(lambda: self._function(*batches[0][0], **batches[0][1]))
            model.run_late_hooks()
            state.step_count += 1
            model.begin_step()
            results = (
                [body(micro) for micro in range(count)] if ranks.pp_size() == 1 else self._pipeline(model, body, count)
            )
            model.end_step()
        return gathered(results, self._detach)

    def _arguments(self, args: tuple, kwargs: dict, micro: int, count: int) -> tuple[tuple, dict]:
        bound = self._signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if name in self._whole:
                continue
            if kind is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {
                    key: it if key in self._whole else split(it, micro, count, self._axes.get(key, 0), key)
                    for key, it in value.items()
                }
            else:
                bound.arguments[name] = split(value, micro, count, self._axes.get(name, 0), name)
        return bound.args, bound.kwargs

    def _pipeline(self, model: Any, body: Callable[[int], Any], count: int) -> list[Any]:
        cfg = state.cfg
        order = Order(cfg.pipeline, ranks.pp_size(), ranks.pp_rank(), count, cfg.active_microbatches)
        learned = model.learned.setdefault((id(self), torch.is_grad_enabled(), model.training), Learned())
        state.engine = Engine(
            model.wire(), model, order, learned, model.workers, cfg.active_microbatches, Turns(state.groups.turns)
        )
        results = state.engine.run(body)
        model.timeline = state.engine.baton.timeline
        return results


def step(
    function: Callable[..., Any] | None = None,
    *,
    non_split_inputs: Sequence[str] = (),
    input_split_axes: Mapping[str, int] | None = None,
    detach_outputs: bool = True,
) -> Any:
    """Makes a function run once for each microbatch: tensor arguments are split along their first
    dimension (`input_split_axes` names others, `non_split_inputs` what is given whole).

    The model is called and `model.backward(loss)` runs in it; `optimizer.step()` outside. Tensors
    that it returns become `StepOutput`s, other values lists of one for each microbatch.
    """

    def wrap(it: Callable[..., Any]) -> StepFunction:
        if not callable(it):
            raise SMPValidationError("smp.step: give a function")
        return StepFunction(it, non_split_inputs, input_split_axes or {}, detach_outputs)

    return wrap if function is None else wrap(function)
