"""The hook for PyTorch: a step begins when a registered module is called.

What is registered on modules depends on what is saved: with the default configuration, nothing but
one callback for each model and each loss.
"""

import functools
import os
import sys
from collections import Counter

import torch

from smdebug.core.collection import PYTORCH_COLLECTIONS
from smdebug.core.guard import guarded
from smdebug.core.hook import GRADIENT_PREFIX, BaseHook
from smdebug.exceptions import SMDebugError
from smdebug.pytorch import values
from smdebug.pytorch.callback import Callback
from smdebug.pytorch.models import attached_to, inner


def _compiles() -> bool:
    return torch.compiler.is_compiling()


class Hook(BaseHook):
    """AWS's `smdebug.pytorch.Hook`: it sees what `register_module` and `register_loss` get."""

    COLLECTIONS = PYTORCH_COLLECTIONS

    def __init__(self, *args, **kwargs):
        #: The modules that were registered and not yet looked into, and the names of the others.
        self._new, self._models, self._handles = [], {}, []
        self.has_registered_module = self.has_registered_loss_module = False
        self._counts, self._candidates = Counter(), []
        super().__init__(*args, **kwargs)

    # What scripts call.

    def register_module(self, module) -> None:
        """Looks at this model from its next call on: each call is a step."""
        if not isinstance(module, torch.nn.Module):
            raise SMDebugError(f"Module type {module.__class__.__name__} must be type torch.nn.Module")
        if self._adopt(module):
            self.attach(attached_to(module).register_forward_pre_hook(Callback(self.forward_pre_hook)))
            self.has_registered_module = True

    register_hook = register_module

    def follow(self, module) -> None:
        """Looks at this model, too, within the steps that another one begins."""
        self._adopt(module)

    def follows(self, module) -> bool:
        """Whether it looks at this model already."""
        return id(inner(module)) in self._models

    def attach(self, handle) -> None:
        """Keeps what is registered, until the hook is off."""
        self._handles.append(handle)

    def _adopt(self, module) -> bool:
        model = inner(module)
        if self.follows(module):
            self.logger.warning(f"{model._get_name()} is registered twice: the second time changes nothing")
            return False
        self._models[id(model)] = model
        self._new.append(module)
        return True

    def register_loss(self, loss_module) -> None:
        """Saves what this loss gives and, if a collection has their names, takes."""
        if not isinstance(loss_module, torch.nn.modules.loss._Loss):
            raise SMDebugError(f"loss_module={loss_module} must be subclass of torch.nn.modules.loss._Loss")
        self.attach(loss_module.register_forward_hook(Callback(self._forward, loss_module._get_name())))
        self.has_registered_loss_module = True

    @guarded
    def record_tensor_value(self, tensor_name, tensor_value) -> None:
        """Saves what a function gave, as `F.mse_loss` does, as an output of this name."""
        if not isinstance(tensor_value, torch.Tensor):
            raise SMDebugError(f"tensor_value={tensor_value} must be torch.Tensor")
        self.offer(tensor_name, (), tensor_value)

    # What PyTorch calls.

    @guarded
    def forward_pre_hook(self, module, inputs) -> None:
        """The call of a registered model: a step begins."""
        if not _compiles() and not self.passes():
            self.begin()

    def is_saving(self) -> bool:
        """Whether tensors of this step are saved."""
        return bool(self._due)

    @guarded
    def begin(self) -> None:
        """A step begins: parameters are saved as they are now."""
        if os.getpid() != self._pid:
            return
        self._begin_step()
        self._counts.clear()
        for module in self._new:
            self._look_into(module)
        self._new.clear()
        if self._due:
            for model in self._models.values():
                name = model._get_name()
                for path, parameter in model.named_parameters():
                    self._save(f"{name}_{path}", parameter)

    @guarded
    def offer(self, name, inputs, outputs) -> None:
        """What a module of this name took and gave."""
        if not self._due or _compiles() or os.getpid() != self._pid:
            return
        for kind, given in (("input", inputs), ("output", outputs)):
            prefix = f"{name}_{kind}_"
            for tensor in values.tensors(given):
                self._save(f"{prefix}{self._counts[prefix]}", tensor)
                self._counts[prefix] += 1

    def _forward(self, name, _module, inputs, outputs) -> None:
        self.offer(name, inputs, outputs)

    @guarded
    def _gradient(self, name, gradient) -> None:
        if self._due and gradient is not None and not _compiles():
            self._save(name, gradient)

    def _look_into(self, module) -> None:
        """Registers what the saved collections need of the model."""
        model = inner(module)
        name = model._get_name()
        compiled = attached_to(module) is not model
        for one in self._saved:
            for asked, (inputs, outputs) in one.modules.items():
                for path, part in model.named_modules():
                    if part is asked:
                        kinds = ["input"] * inputs + ["output"] * outputs
                        one.include([f"{path or name}_{kind}_" for kind in kinds])
        for path, parameter in model.named_parameters():
            gradient = f"{GRADIENT_PREFIX}{name}_{path}"
            self._candidates += [f"{name}_{path}", gradient]
            if parameter.requires_grad and self._saves(gradient):
                self.attach(parameter.register_hook(functools.partial(self._gradient, gradient)))
        unseen = []
        for path, part in model.named_modules():
            part_name = path or name
            names = [f"{part_name}_{kind}_0" for kind in ("input", "output")]
            self._candidates += names
            if any(map(self._saves, names)):
                if compiled and part is not model:
                    unseen.append(part_name)
                at = attached_to(module) if part is model else part
                self.attach(at.register_forward_hook(Callback(self._forward, part_name)))
        if unseen:
            self.logger.warning(
                f"Inputs and outputs of layers within a compiled model are not saved: {', '.join(unseen[:5])}"
                + (" .." if len(unseen) > 5 else "")
            )

    # What the base asks.

    def _names(self) -> list[str]:
        return self._candidates

    def _place(self) -> tuple[int, int]:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return _horovod() or (0, 1)

    def _make_numpy_array(self, value):
        return values.make_array(value)

    def _reduction(self, name, value, is_abs):
        return values.reduction(name, value, is_abs)

    def _detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._models.clear()


def _horovod() -> tuple[int, int] | None:
    """Rank and number of ranks of a script that has begun with Horovod."""
    hvd = sys.modules.get("horovod.torch")
    try:
        return (hvd.rank(), hvd.size()) if hvd is not None and hvd.is_initialized() else None
    except (AttributeError, ValueError):
        return None
