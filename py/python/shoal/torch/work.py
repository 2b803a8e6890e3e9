"""What a collective gives back: torch's `Work`."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist

from shoal.comm import CommError, DeadlineExceeded, Group
from shoal.comm import Work as NativeWork


class Owner(Protocol):
    """The backend whose operation it is."""

    _group: Group
    #: What the first operation failed with, if one has.
    failure: CommError | None


#: Operations that end in no order with others.
MESSAGES = ("send", "recv", "recv_any")


class Work(dist.Work):
    """An operation that was done, or that progresses by itself."""

    def __init__(
        self,
        outputs: list[torch.Tensor],
        native: NativeWork | None = None,
        owner: Owner | None = None,
        after: Callable[[], None] | None = None,
        what: str = "",
    ):
        super().__init__()
        self._outputs = outputs
        self._native = native
        self._owner = owner
        self._after = after
        self._what = what
        self._lock = threading.Lock()
        self._future: torch.futures.Future | None = None
        #: Done when the profiler's event has ended, if there is one.
        self.profiled: torch.futures.Future | None = None

    def _finish(self) -> None:
        """Does what is left after the operation itself, once."""
        with self._lock:
            after, self._after = self._after, None
            if after is not None:
                after()

    def _failed(self, error: CommError) -> CommError:
        if self._owner is not None and self._owner.failure is None:
            self._owner.failure = error
        return error

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits until it is done, at most `timeout` if that is more than nothing; raises what it
        failed with. A wait that ends too early is a `DeadlineExceeded` of which the group takes
        no harm: the operation goes on.
        """
        if self._native is not None:
            seconds = timeout.total_seconds() if timeout is not None else 0.0
            try:
                done = self._native.wait(seconds if seconds > 0 else None)
            except CommError as error:
                raise self._failed(error) from None
            if not done:
                error = DeadlineExceeded(
                    f"{self._what}: Timed out after {seconds} s; wait longer, or check the other ranks"
                )
                error.operation, error.number, error.ranks = self._what, None, []
                raise error
        if self._after is not None:
            self._finish()
        if self.profiled is not None:
            # An event that ends in another thread while the profiler is being put away crashes
            # torch.
            self.profiled.wait()
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
        return self._native is None or (self._native.done() and self.exception() is None)

    def exception(self) -> CommError | None:
        """What it failed with, if it has."""
        error = None if self._native is None else self._native.error()
        return None if error is None else self._failed(error)

    def synchronize(self) -> None:
        """Waits."""
        self.wait()

    def result(self) -> list[torch.Tensor]:
        """Its output tensors."""
        return self._outputs

    def source_rank(self) -> int:
        """From which rank a message came; -1 if it is none that was received."""
        source = None if self._native is None else self._native.source()
        return -1 if source is None else source

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future:
        """A future of the output tensors, or of what it failed with."""
        if getattr(_asked, "open", False):
            _asked.found = self
            return _NOTHING
        if self._future is None:
            if self._native is None or (self._native.done() and self.is_success()):
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
                raise self._failed(error)
            self._finish()
            return self._outputs

        # What a callback raises is an error for those who wait in C++, too; Future.set_exception is
        # one for Python only.
        future = told.then(value)
        self._owner._group.tell(self._native, told.set_result, self._what in MESSAGES)
        return future


# torch wraps what a backend in Python gives back in an object that passes on `wait` and
# `get_future`, and answers all other questions by itself: it is never completed. So the questions
# of torch's class are answered here where the work is one of ours, which a call of `get_future`
# tells.

_asked = threading.local()
_NOTHING: torch.futures.Future = torch.futures.Future()
_NOTHING.set_result(None)


def ours(work: dist.Work) -> Work | None:
    """The work of this backend in what torch made of it; none if it is another backend's."""
    if isinstance(work, Work):
        return work
    _asked.open, _asked.found = True, None
    try:
        work.get_future()
    except RuntimeError:
        # Works of some backends have none.
        return None
    finally:
        _asked.open = False
        found, _asked.found = _asked.found, None
    return found


def answer(name: str) -> None:
    """Lets torch's class ask our works this question."""
    torchs = getattr(dist.Work, name)

    def asked(self, *arguments):
        work = ours(self)
        return torchs(self, *arguments) if work is None else getattr(work, name)(*arguments)

    asked.__name__, asked.__qualname__, asked.__doc__ = name, f"Work.{name}", torchs.__doc__
    setattr(dist.Work, name, asked)


for _name in ("is_completed", "is_success", "exception", "result", "source_rank", "_source_rank", "synchronize"):
    answer(_name)
