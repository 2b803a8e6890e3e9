"""Parameters and buffers of modules that were built on the meta device."""

import torch
from torch import nn
from torch.utils.weak import WeakTensorKeyDictionary

__all__ = ["empty_module_params", "move_buffers_to_device"]

#: What was made of a parameter, so that modules that shared one share it again.
_made = WeakTensorKeyDictionary()


def default_device() -> torch.device:
    """This process's GPU, or the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def empty_module_params(
    module: nn.Module, device: torch.device | int | None = None, recurse: bool = False
) -> nn.Module:
    """Gives a module new parameters on the device, of the same shapes and with any values; also
    its modules' if `recurse`. Modules that share a parameter on the meta device share the new
    one.
    """
    device = default_device() if device is None else torch.device(device)
    for it in module.modules() if recurse else [module]:
        fresh_parameters(it, device)
    return module


def fresh_parameters(module: nn.Module, device: torch.device) -> list[tuple[str, nn.Parameter]]:
    """The same for one module; gives the new ones, without those that were made for another
    module already.
    """
    fresh = []
    for name, old in list(module.named_parameters(recurse=False, remove_duplicate=False)):
        new = _made.get(old) if old.is_meta else None
        if new is None:
            with torch.no_grad():
                new = nn.Parameter(torch.empty_like(old, device=device), requires_grad=old.requires_grad)
            if old.is_meta:
                _made[old] = new
            fresh.append((name, new))
        module.register_parameter(name, new)
    return fresh


def move_buffers_to_device(module: nn.Module, device: torch.device | int, recurse: bool = False) -> nn.Module:
    """Moves a module's buffers; also its modules' if `recurse`. Raises `ValueError` for one on
    the meta device, which has no values.
    """
    for it in module.modules() if recurse else [module]:
        for name, buffer in list(it.named_buffers(recurse=False)):
            if buffer.is_meta:
                what = f"buffer {name} of {type(it).__name__} is on the meta device and has no values to move"
                raise ValueError(
                    f"{what}; compute it anew, or build the model with accelerate.init_empty_weights(), which leaves buffers on the CPU"
                )
            it._buffers[name] = buffer.to(device)
    return module
