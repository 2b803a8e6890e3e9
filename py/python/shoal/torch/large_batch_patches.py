"""What scripts call once a pass, made to act once a step: `zero_grad`, clipping, `GradScaler`,
schedulers, DistributedDataParallel.

PyTorch has no hooks for these, so its functions are wrapped, once in a process and when the first
large batch begins. They are as before for all that accumulates nothing.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler, OptState
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad
from torch.optim import Optimizer, lr_scheduler

from shoal.comm import ConfigError
from shoal.torch import large_batch_ddp
from shoal.torch.large_batch_passes import Passes, inside, of_parameters

__all__ = ["counting", "install", "passes_of"]

_installed = False
#: Of a scheduler: how many steps of its optimizer were done when it last acted.
_acted: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
#: Of a scaler, since its last update: whether optimizers waited for more passes, and whether others
#: have stepped.
_stepped: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def install() -> None:
    """Wraps PyTorch's functions; the second time nothing is done."""
    global _installed
    if _installed:
        return
    _installed = True
    _wrap(Optimizer, "zero_grad", _optimizer_zero_grad)
    _wrap(nn.Module, "zero_grad", _module_zero_grad)
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        _wrap_clipping(name, _clip)
    for name, wrapper in (("unscale_", _unscale), ("step", _scaler_step), ("update", _scaler_update)):
        _wrap(GradScaler, name, wrapper)
    for kind in [
        it for it in vars(lr_scheduler).values() if isinstance(it, type) and issubclass(it, lr_scheduler.LRScheduler)
    ]:
        if "step" in vars(kind):
            _wrap(kind, "step", _scheduler_step)
    _wrap(DistributedDataParallel, "forward", large_batch_ddp.forward)
    _wrap(DistributedDataParallel, "register_comm_hook", large_batch_ddp.register_comm_hook)


def _wrap(owner: object, name: str, wrapper: Callable[[Callable], Callable]) -> None:
    setattr(owner, name, wrapper(getattr(owner, name)))


def _wrap_clipping(name: str, wrapper: Callable[[Callable], Callable]) -> None:
    """Scripts have imported these functions by name, perhaps before: what they call is wrapped
    where PyTorch keeps it, in the cell of its `no_grad`.
    """
    function = getattr(clip_grad, name)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if "func" in cells:
        cells["func"].cell_contents = wrapper(cells["func"].cell_contents)
    else:
        for module in (clip_grad, nn.utils):
            _wrap(module, name, wrapper)


def passes_of(optimizer: Optimizer) -> Passes | None:
    """The accumulation that this optimizer steps for."""
    own = getattr(optimizer, "_shoal_passes", None)
    return own if own is not None else of_parameters(it for part in optimizer.param_groups for it in part["params"])


#: Makes the accumulation of an optimizer that has none when it steps, where all do.
begin: Callable[[Optimizer], Passes | None] | None = None


def counting(optimizer: Optimizer) -> Passes | None:
    """The accumulation of an optimizer that is about to step."""
    passes = passes_of(optimizer)
    return begin(optimizer) if passes is None and begin is not None else passes


def _optimizer_zero_grad(original: Callable) -> Callable:
    @functools.wraps(original)
    def zero_grad(self: Optimizer, *arguments, **options):
        passes = passes_of(self)
        if passes is None or passes.now.number == 0:
            return original(self, *arguments, **options)

    return zero_grad


def _module_zero_grad(original: Callable) -> Callable:
    @functools.wraps(original)
    def zero_grad(self: nn.Module, *arguments, **options):
        passes = of_parameters(self.parameters())
        if passes is None or passes.now.number == 0:
            return original(self, *arguments, **options)

    return zero_grad


def _clip(original: Callable) -> Callable:
    """Clipping is not linear: it waits for the whole gradient. Before, the norm of what is there
    is given and nothing is changed.
    """

    @functools.wraps(original)
    def clip(parameters, *arguments, **options):
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        passes = of_parameters(parameters)
        if passes is None or passes.now.communicates:
            if passes is not None:
                passes.complete()
            return original(parameters, *arguments, **options)
        if original.__name__ == "clip_grad_norm_":
            # Without the limit, the arguments are the same.
            arguments = arguments if options.pop("max_norm", None) is not None else arguments[1:]
            return nn.utils.get_total_norm([it.grad for it in parameters if it.grad is not None], *arguments, **options)
        return None

    return clip


def _unscale(original: Callable) -> Callable:
    @functools.wraps(original)
    def unscale_(self: GradScaler, optimizer: Optimizer) -> None:
        passes = counting(optimizer)
        if passes is None or not self._enabled:
            return original(self, optimizer)
        if not passes.now.communicates:
            return None
        passes.complete()
        original(self, optimizer)
        # Compressed gradients need not be equally finite on all ranks.
        for found in self._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values():
            passes.maximum(found)

    return unscale_


def _scaler_step(original: Callable) -> Callable:
    @functools.wraps(original)
    def step(self: GradScaler, optimizer: Optimizer, *arguments, **options):
        passes = counting(optimizer)
        if passes is None or not self._enabled:
            _stepped.setdefault(self, set()).add("done")
            return original(self, optimizer, *arguments, **options)
        if not passes.now.communicates:
            _stepped.setdefault(self, set()).add("waits")
            passes.advance()
            return None
        _stepped.setdefault(self, set()).add("done")
        if self._per_optimizer_states[id(optimizer)]["stage"] is OptState.READY:
            self.unscale_(optimizer)
        before = passes.done
        result = original(self, optimizer, *arguments, **options)
        if passes.done == before:
            # A gradient was not finite: the step is skipped, and all of its passes with it.
            passes.advance()
        return result

    return step


def _scaler_update(original: Callable) -> Callable:
    @functools.wraps(original)
    def update(self: GradScaler, *arguments, **options) -> None:
        stepped = _stepped.pop(self, set())
        if stepped == {"done", "waits"}:
            problem = "one GradScaler for optimizers with different numbers of passes: the scale would change between the passes of one of them"
            raise ConfigError(f"large batch: {problem}; give each a GradScaler of its own")
        if stepped != {"waits"}:
            original(self, *arguments, **options)

    return update


def _scheduler_step(original: Callable) -> Callable:
    """A scheduler acts if its optimizer has done a step since: once a step if it is called once
    a pass, at each call if it is called once an epoch.
    """

    @functools.wraps(original)
    def step(self: lr_scheduler.LRScheduler, *arguments, **options):
        with inside() as nested:
            if self._is_initial:
                begun = passes_of(self.optimizer)
                if begun is not None and begun.done:
                    _acted[self] = begun.steps
            passes = None if nested or self._is_initial or not hasattr(self, "optimizer") else counting(self.optimizer)
            if passes is None:
                return original(self, *arguments, **options)
            # A script that calls it before the optimizer's first step means that, too.
            if passes.steps > _acted.get(self, 0 if passes.done else -1):
                _acted[self] = passes.steps
                return original(self, *arguments, **options)

    return step
