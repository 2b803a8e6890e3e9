"""Parameters without storage: the operations that make them are recorded, and run later for
those that a rank keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["is_deferred", "materialize", "recording"]


class _View(NamedTuple):
    """A tensor as a part of a storage."""

    storage: int
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


class _Step(NamedTuple):
    call: Any
    args: tuple
    kwargs: dict
    #: Storages that the operation makes.
    makes: list[tuple[int, int]]


#: The recorded operations, and their storages, which must live as long as their addresses identify
#: them.
_log: list[_Step] = []
_kept: dict[int, Any] = {}
#: The random generator's state when recording began.
_random: list[torch.Tensor] = []


class _Recorder(TorchDispatchMode):
    """Computes shapes only, and records the operations."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        named = (pytree.tree_map(_described, args), pytree.tree_map(_described, kwargs))
        tensors = [it for it in pytree.tree_leaves((args, kwargs)) if isinstance(it, torch.Tensor)]
        if not tensors and any(it.name == "device" for it in func._schema.arguments):
            kwargs["device"] = torch.device("meta")
        output = func(*args, **kwargs)
        makes = []
        for place, it in enumerate(pytree.tree_leaves(output)):
            if isinstance(it, torch.Tensor) and it.is_meta:
                storage = it.untyped_storage()
                if storage._cdata not in _kept:
                    _kept[storage._cdata] = storage
                    makes.append((place, storage._cdata))
        _log.append(_Step(func, *named, makes))
        return output


def _described(it: Any) -> Any:
    if isinstance(it, torch.Tensor) and it.is_meta:
        return _View(it.untyped_storage()._cdata, it.storage_offset(), tuple(it.shape), tuple(it.stride()), it.dtype)
    return it


@contextmanager
def recording() -> Iterator[None]:
    """Tensors that are made in this block have shapes and no storage."""
    if not _log:
        _random[:] = [torch.get_rng_state()]
    with _Recorder():
        yield


def is_deferred(tensor: torch.Tensor) -> bool:
    """Whether a tensor was made in such a block and has no storage yet."""
    return tensor.is_meta and tensor.untyped_storage()._cdata in _kept


def materialize(wanted: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Makes these tensors real. All recorded random numbers are drawn in their order, also those
    of tensors that are not wanted, so the values are those of a model that was made without
    delay; only these tensors and the one being made take memory. Ends the record.
    """
    wanted = list(wanted)
    keep = {it.untyped_storage()._cdata for it in wanted}
    last: dict[int, int] = {}
    for at, step in enumerate(_log):
        for it in pytree.tree_leaves((step.args, step.kwargs), is_leaf=_is_view):
            if _is_view(it):
                last[it.storage] = at
        for _, name in step.makes:
            last.setdefault(name, at)
    real: dict[int, torch.Tensor] = {}

    def tensor(it: Any) -> Any:
        if not _is_view(it):
            return it
        flat = real[it.storage]
        return torch.empty(0, dtype=it.dtype).set_(flat.untyped_storage(), it.offset, it.size, it.stride)

    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        if _random:
            torch.set_rng_state(_random[0])
        for at, step in enumerate(_log):
            args, kwargs = (pytree.tree_map(tensor, it, is_leaf=_is_view) for it in (step.args, step.kwargs))
            leaves = pytree.tree_leaves(step.call(*args, **kwargs))
            for place, name in step.makes:
                real[name] = leaves[place]
            for name in {
                it.storage for it in pytree.tree_leaves((step.args, step.kwargs), is_leaf=_is_view) if _is_view(it)
            } | {it for _, it in step.makes}:
                if last[name] == at and name not in keep:
                    real.pop(name, None)
        made = [tensor(_described(it)) for it in wanted]
    return made


def forget() -> None:
    """Drops the record."""
    _log.clear()
    _kept.clear()
    _random.clear()


def _is_view(it: Any) -> bool:
    return isinstance(it, _View)
