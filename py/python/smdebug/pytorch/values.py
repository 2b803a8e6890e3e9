"""PyTorch's tensors as arrays and reductions."""

import numpy as np
import torch

from smdebug.core.reductions import get_numpy_reduction, make_numpy_array


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Without graph, and as one dense block that is here: of a tensor of many ranks this rank's part."""
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    return tensor.to_dense() if tensor.layout is not torch.strided else tensor


def make_array(value) -> np.ndarray:
    """A tensor, or anything that numpy takes, as an array. Types that numpy has not, bfloat16 and
    shorter ones, are float32, which holds their values.
    """
    if not isinstance(value, torch.Tensor):
        return make_numpy_array(value)
    tensor = _plain(value)
    if tensor.dtype.is_floating_point and tensor.dtype not in (torch.float16, torch.float32, torch.float64):
        tensor = tensor.float()
    return tensor.cpu().resolve_conj().resolve_neg().numpy()


def reduction(name: str, value, is_abs: bool):
    """A reduction, computed where the tensor is."""
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return get_numpy_reduction(name, make_array(value), is_abs)
    tensor = _plain(value)
    tensor = torch.abs(tensor) if is_abs else tensor
    if name in ("l1", "l2"):
        return torch.linalg.vector_norm(tensor, ord=int(name[1]))
    if name in ("std", "variance"):
        # One value has no spread; torch's correction would divide by zero.
        correction = 1 if tensor.numel() > 1 else 0
        return (torch.std if name == "std" else torch.var)(tensor, correction=correction)
    return getattr(torch, name)(tensor)


def tensors(value):
    """The tensors of what a module takes or gives, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors(one)
