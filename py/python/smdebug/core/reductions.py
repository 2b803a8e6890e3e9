"""What is saved in a tensor's place: statistics of its values."""

import re

import numpy as np

from smdebug.core.reduction_config import ALLOWED_NORMS, ALLOWED_REDUCTIONS
from smdebug.exceptions import SMDebugValueError

REDUCTIONS_PREFIX = "smdebug/reductions/"
_INDEX = re.compile(r":\d+")


def make_numpy_array(value) -> np.ndarray:
    """Numbers, texts and their lists as an array."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, (str, bytes)):
        return np.array([value])
    return np.array(value)


def get_numpy_reduction(reduction_name: str, numpy_data, abs: bool = False):
    """The reduction of that name; `abs` is of absolute values."""
    data = np.absolute(numpy_data) if abs else np.asarray(numpy_data)
    if reduction_name in ALLOWED_NORMS:
        flat = data.ravel()
        return np.sum(np.absolute(flat)) if reduction_name == "l1" else np.sqrt(np.sum(np.square(flat)))
    if reduction_name not in ALLOWED_REDUCTIONS:
        raise SMDebugValueError(f"Invalid reduction type {reduction_name}")
    return getattr(np, "var" if reduction_name == "variance" else reduction_name)(data)


def get_reduction_tensor_name(tensorname: str, reduction_name: str, abs: bool, remove_colon_index: bool = True) -> str:
    """Under which name the reduction of a tensor is stored."""
    name = f"{'abs_' if abs else ''}{reduction_name}/{tensorname}"
    return REDUCTIONS_PREFIX + (_INDEX.sub("", name) if remove_colon_index else name)


def reverse_reduction_tensor_name(name: str) -> tuple[str, str, bool]:
    """Tensor, reduction, and whether it is of absolute values."""
    reduction, _, tensor = name.split(REDUCTIONS_PREFIX, 1)[1].partition("/")
    is_abs = reduction.startswith("abs_")
    return tensor, reduction[4:] if is_abs else reduction, is_abs
