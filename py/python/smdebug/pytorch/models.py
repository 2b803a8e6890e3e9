"""What is around a model: wrappers for many ranks, and compiled ones."""

import torch

#: Where wrappers have what they wrap.
_INNER = ("_orig_mod", "module", "_fsdp_wrapped_module")
_WRAPPERS = ("OptimizedModule", "DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")


def _within(module):
    if type(module).__name__ not in _WRAPPERS:
        return None
    for name in _INNER:
        found = getattr(module, name, None)
        if isinstance(found, torch.nn.Module):
            return found
    return None


def inner(module):
    """The model in its wrappers: tensors have its names."""
    within = _within(module)
    return module if within is None else inner(within)


def attached_to(module):
    """The module whose calls are seen: the model, or what is compiled, as nothing within is called."""
    if type(module).__name__ == "OptimizedModule":
        return module
    within = _within(module)
    return module if within is None else attached_to(within)
