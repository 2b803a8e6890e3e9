"""Queries and helpers of scripts and adapters."""

import functools
import importlib.util
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from horovod.common.basics import HorovodBasics
from horovod.common.exceptions import HorovodVersionMismatchError, get_version_mismatch_message

#: Frameworks that Horovod has modules for.
EXTENSIONS = ["tensorflow", "torch", "mxnet"]
_basics = HorovodBasics()


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """`ImportError` unless the framework is installed and has a module here: `ext_name` is such
    as `horovod.torch`. The other arguments are Horovod's, and not used.
    """
    framework = ext_name.rpartition(".")[2]
    if not extension_available(framework):
        raise ImportError(
            f"{ext_name} is not available: install {framework}"
            if framework != "mxnet"
            else f"{ext_name} is not offered; use horovod.torch or horovod.tensorflow"
        )


def _cache(function: Callable) -> Callable:
    """Computes a value once for each set of arguments."""
    return functools.cache(function)


@_cache
def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework is installed and has a module here."""
    return ext_base_name in ("torch", "tensorflow", "keras") and importlib.util.find_spec(ext_base_name) is not None


@_cache
def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework sees a GPU."""
    if not extension_available(ext_base_name):
        return False
    if ext_base_name == "torch":
        import torch

        return torch.cuda.is_available()
    import tensorflow

    return bool(tensorflow.config.list_physical_devices("GPU"))


def mpi_built(verbose: bool = False) -> bool:
    """As `hvd.mpi_built()`."""
    return _basics.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """As `hvd.gloo_built()`."""
    return _basics.gloo_built()


def nccl_built(verbose: bool = False) -> int:
    """As `hvd.nccl_built()`."""
    return _basics.nccl_built()


def ddl_built(verbose: bool = False) -> bool:
    """As `hvd.ddl_built()`."""
    return _basics.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """As `hvd.ccl_built()`."""
    return _basics.ccl_built()


@contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Sets variables of the environment, None to unset, and puts them back."""
    before = {name: os.environ.get(name) for name in kwargs}
    try:
        _set(kwargs)
        yield
    finally:
        _set(before)


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def get_average_backwards_compatibility_fun(reduce_ops) -> Callable:
    """A function of (op, average) that gives the reduction: `average` is the older way to say
    Average or Sum, and both are a `ValueError`.
    """

    def reduction(op, average):
        if op is not None:
            if average is not None:
                raise ValueError("The op parameter supersedes average. Please provide only one of them.")
            return op
        if average is None:
            return reduce_ops.Average
        warnings.warn(
            "Parameter `average` has been replaced with `op` and will be removed in v1.0",
            DeprecationWarning,
            stacklevel=3,
        )
        return reduce_ops.Average if average else reduce_ops.Sum

    return reduction


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether the number of ranks is a power of two, as Adasum needs it."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(items: list, number: int) -> list[list]:
    """The list in about equal pieces, in order: at most `number`, none empty."""
    number = min(number, len(items))
    if number < 1:
        return []
    short, longer = divmod(len(items), number)
    ends = [short * it + min(it, longer) for it in range(number + 1)]
    return [items[begin:end] for begin, end in zip(ends, ends[1:], strict=False)]


def check_installed_version(name: str, version: str, exception: Exception | None = None) -> None:
    """Accepts every version, as nothing here is compiled for one. An import's `exception` is
    raised again as `HorovodVersionMismatchError`.
    """
    if exception is not None:
        raise HorovodVersionMismatchError(name, version, version) from exception


def is_iterable(it) -> bool:
    """Whether it can be iterated over."""
    return isinstance(it, Iterable)


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Whether a version is at least `target`, given as major.minor.patch."""
    from packaging.version import parse

    if not (isinstance(ver, str) and isinstance(target, str)):
        raise ValueError(f"This function only accepts string arguments, not {ver!r} and {target!r}")
    if target.count(".") != 2:
        raise ValueError(f"We only accepts target version values in the form of: major.minor.patch. Received: {target}")
    return parse(ver) >= parse(target)


__all__ = [
    "EXTENSIONS",
    "ccl_built",
    "check_extension",
    "check_installed_version",
    "ddl_built",
    "env",
    "extension_available",
    "get_average_backwards_compatibility_fun",
    "get_version_mismatch_message",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "is_version_greater_equal_than",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "split_list",
]
