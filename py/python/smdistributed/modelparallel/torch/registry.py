"""The registry of distributed forms of module classes, and the replacement of modules by them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import nn

from smdistributed.modelparallel.torch import ranks
from smdistributed.modelparallel.torch.creation import STAGE, TENSOR
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.state_mod import state

__all__ = ["Distributed", "axis_of", "distribute", "is_scaled", "mark", "tp_register", "tp_register_with_module"]

Hook = Callable[..., Any]
AXIS, SCALED, INIT = "_smp_axis", "_smp_scaled", "_smp_init_arguments"


class Distributed(nn.Module):
    """A module that the ranks of a tensor parallel group share."""

    @classmethod
    def fits(cls, degree: int, *args: Any, **kwargs: Any) -> bool:
        """Whether a module of these arguments can be divided by the degree."""
        return True


class _Form(NamedTuple):
    distributed: type[nn.Module]
    init_hook: Hook | None
    forward_hook: Hook | None
    return_hook: Hook | None


_forms: dict[type[nn.Module], _Form] = {}


def axis_of(it: torch.Tensor) -> int | None:
    """The dimension that tensor parallel ranks share; none if each has the whole tensor."""
    return getattr(it, AXIS, None)


def is_scaled(it: torch.Tensor) -> bool:
    """Whether the parameter sees the samples of all ranks of its tensor parallel group, each
    with its own loss.
    """
    return bool(getattr(it, SCALED, False)) and not state.cfg.prescaled_batch


def mark(it: torch.Tensor, axis: int | None, scaled: bool = False) -> torch.Tensor:
    """Records how a parameter is shared."""
    if axis is not None:
        setattr(it, AXIS, axis)
    if scaled:
        setattr(it, SCALED, True)
    return it


def tp_register_with_module(
    cls: type[nn.Module],
    distributed_module: type[nn.Module],
    init_hook: Hook | None = None,
    forward_hook: Hook | None = None,
    return_hook: Hook | None = None,
) -> None:
    """Modules of class `cls` under `smp.tensor_parallelism` become a `distributed_module`.

    `init_hook` and `forward_hook` take what `cls.__init__` and `cls.forward` take without self, and
    return (args, kwargs) for the distributed module's; an `init_hook` that returns none leaves the
    module whole. `return_hook` makes of the distributed module's output what `cls.forward` returns.
    """
    if not (
        isinstance(cls, type)
        and issubclass(cls, nn.Module)
        and isinstance(distributed_module, type)
        and issubclass(distributed_module, nn.Module)
    ):
        raise SMPValidationError("tp_register: give classes of torch.nn.Module")
    _forms[cls] = _Form(distributed_module, init_hook, forward_hook, return_hook)
    plain = cls.__init__
    if getattr(plain, "_smp_recorded", False) or cls in (nn.Linear, nn.Embedding):
        # torch's modules have their arguments as attributes.
        return

    @wraps(plain)
    def recorded(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        if type(self) is cls:
            object.__setattr__(self, INIT, (args, kwargs))
        plain(self, *args, **kwargs)

    recorded._smp_recorded = True
    cls.__init__ = recorded


def tp_register(
    distributed_module: type[nn.Module],
    init_hook: Hook | None = None,
    forward_hook: Hook | None = None,
    return_hook: Hook | None = None,
) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """The same as a decorator of the class."""

    def register(cls: type[nn.Module]) -> type[nn.Module]:
        tp_register_with_module(cls, distributed_module, init_hook, forward_hook, return_hook)
        return cls

    return register


def distribute(module: nn.Module) -> nn.Module:
    """The module with distributed forms in place of the outermost modules that were made for
    tensor parallelism and have one.
    """
    if "transformers" in sys.modules:
        # Its models have distributed forms, too.
        from smdistributed.modelparallel.torch.nn.huggingface import gpt2

        gpt2.register()
    shared = _shared(module)
    new = _replacement(module, shared)
    if new is not None:
        return new
    _walk(module, shared)
    return module


def _walk(module: nn.Module, shared: set[int]) -> None:
    for name, child in list(module.named_children()):
        new = _replacement(child, shared)
        if new is None:
            _walk(child, shared)
        else:
            setattr(module, name, new)


def _shared(module: nn.Module) -> set[int]:
    """Modules that share a parameter with a module that is not in them, and modules that stand
    at several places.
    """
    owners: dict[int, list[str]] = {}
    places: dict[int, int] = {}
    for name, it in module.named_modules(remove_duplicate=False):
        places[id(it)] = places.get(id(it), 0) + 1
        for parameter in it._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append(name)
    found = {key for key, count in places.items() if count > 1}
    tied = [names for names in owners.values() if len(names) > 1]
    for name, it in module.named_modules():
        inside = [[x == name or x.startswith(f"{name}.") or not name for x in names] for names in tied]
        if any(any(x) and not all(x) for x in inside):
            found.add(id(it))
    return found


def _replacement(module: nn.Module, shared: set[int]) -> nn.Module | None:
    settings, form = module.__dict__.get(TENSOR), _forms.get(type(module))
    if settings is None or form is None or id(module) in shared:
        return None
    args, kwargs = module.__dict__.get(INIT) or _arguments(module)
    if form.init_hook is not None:
        hooked = form.init_hook(*args, **kwargs)
        if hooked is None:
            return None
        args, kwargs = hooked
    known = _names(form.distributed)
    kwargs = {**kwargs, **{name: value for name, value in settings.items() if known is None or name in known}}
    fits = getattr(form.distributed, "fits", None)
    if fits is not None and not fits(ranks.tp_size(), *args, **kwargs):
        return None
    new = form.distributed(*args, **kwargs)
    if state.cfg._match_weights and hasattr(new, "match") and not any(it.is_meta for it in module.parameters()):
        new.match(module)
    if form.forward_hook is not None or form.return_hook is not None:
        _hook(new, form)
    new.train(module.training)
    if STAGE in module.__dict__:
        for it in new.modules():
            object.__setattr__(it, STAGE, module.__dict__[STAGE])
    return new


def _arguments(module: nn.Module) -> tuple[tuple, dict[str, Any]]:
    """The arguments of one of torch's modules, from its attributes."""
    if isinstance(module, nn.Linear):
        return (module.in_features, module.out_features), {"bias": module.bias is not None}
    if hasattr(module, "config"):
        return (module.config,), {}
    if isinstance(module, nn.Embedding):
        special = {name: True for name in ("max_norm", "scale_grad_by_freq", "sparse") if getattr(module, name)}
        return (module.num_embeddings, module.embedding_dim), {"padding_idx": module.padding_idx, **special}
    raise SMPValidationError(
        f"tensor parallelism of {type(module).__name__}: it was made before its class was registered; call smp.tp_register first"
    )


def _names(cls: type[nn.Module]) -> set[str] | None:
    """Names of the arguments of a class; None if it takes any."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    if any(it.kind is it.VAR_KEYWORD for it in parameters):
        return None
    return {it.name for it in parameters}


def _hook(module: nn.Module, form: _Form) -> None:
    plain = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if form.forward_hook is not None:
            args, kwargs = form.forward_hook(*args, **kwargs)
        output = plain(*args, **kwargs)
        return output if form.return_hook is None else form.return_hook(output)

    module.forward = forward
