"""Handles of asynchronous calls: numbers by which `synchronize` finds an operation and its
output.
"""

import itertools
from collections.abc import Callable

from shoal.comm import CommError

from horovod.common import engine

_numbers = itertools.count()
#: Operations that are not synchronised yet. Each keeps its tensors alive.
_pending: dict[int, "Pending"] = {}


class Pending:
    """An operation in progress, and the function that makes its output."""

    __slots__ = ("finish", "keep", "native")

    def __init__(self, native, finish: Callable, keep: object = None):
        self.native, self.finish, self.keep = native, finish, keep

    def wait(self):
        """Its output, when it is done; `HorovodInternalError` if it failed."""
        try:
            self.native.wait()
        except CommError as error:
            raise engine.failed(error) from error
        return self.finish(self.native)


def add(pending: Pending) -> int:
    """Registers an operation and returns its handle."""
    number = next(_numbers)
    _pending[number] = pending
    return number


def poll(handle: int) -> bool:
    """Whether an operation is done, so that `synchronize` does not block; `ValueError` if the
    handle is unknown or was synchronised.
    """
    pending = _pending.get(handle)
    if pending is None:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    return pending.native.done()


def synchronize(handle: int):
    """Waits for an operation and gives its output: one tensor, a list for a grouped one,
    (tensor, received splits) for an all-to-all with splits. None for a handle that is unknown or
    was synchronised before. `HorovodInternalError` if the operation failed.
    """
    pending = _pending.pop(handle, None)
    return None if pending is None else pending.wait()


def forget() -> None:
    """Drops the operations of an engine that has ended."""
    _pending.clear()
