"""What a collective gives back: torch's `Work`."""

import threading
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from shoal.comm import DeadlineExceeded, Group
from shoal.comm import Work as NativeWork


class Work(dist.Work):
    """An operation that was done, or that progresses by itself."""

    def __init__(
        self,
        outputs: list[torch.Tensor],
        native: NativeWork | None = None,
        group: Group | None = None,
        after: Callable[[], None] | None = None,
        source: int = -1,
    ):
        super().__init__()
        self._outputs = outputs
        self._native = native
        self._group = group
        self._after = after
        self._source = source
        self._lock = threading.Lock()
        self._future: torch.futures.Future | None = None

    def _finish(self) -> None:
        """Does what is left after the operation itself, once."""
        with self._lock:
            after, self._after = self._after, None
            if after is not None:
                after()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits until it is done, at most `timeout` if that is more than nothing; raises what it failed with."""
        if self._native is not None:
            seconds = timeout.total_seconds() if timeout is not None else 0.0
            if not self._native.wait(seconds if seconds > 0 else None):
                raise DeadlineExceeded(f"the operation is not done after {seconds} s; wait longer, or look what the other ranks do")
        if self._after is not None:
            self._finish()
        return True

    def is_completed(self) -> bool:
        """Whether it is done, well or not."""
        if self._native is not None and not self._native.done():
            return False
        if self.is_success():
            self._finish()
        return True

    def is_success(self) -> bool:
        """Whether it is done, and well."""
        return self._native is None or (self._native.done() and self._native.error() is None)

    def exception(self):
        """What it failed with, if it has."""
        return None if self._native is None else self._native.error()

    def synchronize(self) -> None:
        """Waits."""
        self.wait()

    def result(self) -> list[torch.Tensor]:
        """Its output tensors."""
        return self._outputs

    def source_rank(self) -> int:
        """From which rank a message came."""
        return self._source

    def get_future(self) -> torch.futures.Future:
        """A future of the output tensors, or of what it failed with."""
        if self._future is None:
            if self._native is None or self._native.done():
                self.wait()
                self._future = torch.futures.Future()
                self._future.set_result(self._outputs)
            else:
                self._future = self._told_future()
        return self._future

    def _told_future(self) -> torch.futures.Future:
        told: torch.futures.Future = torch.futures.Future()

        def value(told: torch.futures.Future) -> list[torch.Tensor]:
            error = told.value()
            if error is not None:
                raise error
            self._finish()
            return self._outputs

        # What a callback raises is an error for those who wait in C++, too; Future.set_exception is one for Python only.
        future = told.then(value)
        self._group.tell(self._native, told.set_result, self._source >= 0)
        return future
