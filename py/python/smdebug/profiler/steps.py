"""What becomes of a step: its parts are added up while it lasts, and its end makes an event.

Of steps that come faster than `MAX_PER_SECOND`, some have no event of their own: the next one counts
them, with the sums of their times. A step that takes much longer than usual always has one.
"""

import atexit
import os
import socket
import sys
import threading
import time

from smdebug import profiler
from smdebug.core.guard import place
from smdebug.core.logger import get_logger
from smdebug.profiler.timeline import Timeline

#: Events of usual steps in a second.
MAX_PER_SECOND = 20
#: Times the usual duration, from which on a step always has an event.
_MUCH_LONGER = 2.0
#: What a step waits for or does; the rest is forward and the script's own.
PARTS = ("data", "backward", "optimizer", "communication")


class Steps:
    """The steps of this process. `now` counts seconds, from any moment."""

    def __init__(self, timeline, now: float, epoch_us: int, rank=lambda: 0):
        self._timeline, self._rank = timeline, rank
        #: What makes microseconds since the epoch of `now`.
        self._epoch_us, self._origin = epoch_us, now
        #: When the present step began; None before the first.
        self._begin = None
        self._number, self._usual = 0, 0.0
        self._parts = dict.fromkeys(PARTS, 0.0)
        #: Steps since the last event, their times, and the last one's begin and duration.
        self._count, self._total, self._last = 0, 0.0, (now, 0.0)
        self._second, self._written = 0, 0

    def begin(self, now: float) -> None:
        """The first step begins, if none has."""
        if self._begin is None:
            self._begin = now

    def spent(self, part: str, begin: float, end: float) -> None:
        """A part of the present step."""
        self.begin(begin)
        self._parts[part] += end - begin

    def communicated(self) -> float:
        """Seconds that the present step has waited for other ranks."""
        return self._parts["communication"]

    def backward(self, begin: float, end: float, communicated: float, launched: float) -> None:
        """A backward pass of the present step, at whose begin it had `communicated`; `launched` is
        when the last operation with other ranks began.
        """
        waited = self.communicated() - communicated
        tail = end - launched if begin < launched else 0.0
        if tail > waited:
            self.spent("communication", begin, begin + tail - waited)
        self.spent("backward", begin, end - max(tail, waited))

    def end(self, now: float) -> None:
        """The present step ends, and the next one begins."""
        begin = self._begin
        self._begin = now
        if begin is None:
            return
        duration = now - begin
        self._number += 1
        self._count += 1
        self._total += duration
        self._last = begin, duration
        second = int(now)
        if second != self._second:
            self._second, self._written = second, 0
        is_long = duration > _MUCH_LONGER * self._usual
        # The first step has the start's own costs.
        if self._number > 1:
            self._usual += (duration - self._usual) * max(0.02, 1 / (self._number - 1))
        limit = MAX_PER_SECOND * (5 if is_long else 1)
        if self._written < limit and (is_long or self._written < MAX_PER_SECOND):
            self._written += 1
            self._write()

    def _write(self) -> None:
        begin, duration = self._last
        arguments = {"step_num": self._number - 1}
        if self._count > 1:
            arguments["steps"] = self._count
            arguments["total_us"] = round(1e6 * self._total)
        for part, seconds in self._parts.items():
            if seconds:
                arguments[f"{part}_us"] = round(1e6 * seconds)
                self._parts[part] = 0.0
        self._count, self._total = 0, 0.0
        begin_us = self._epoch_us + round(1e6 * (begin - self._origin))
        self._timeline.add(self._rank(), begin_us, round(1e6 * duration), arguments)

    def close(self, now: float) -> None:
        """No step follows: what waits is written."""
        if self._count:
            self._write()
        self._timeline.write(self._epoch_us + round(1e6 * (now - self._origin)))


class Observer:
    """The steps of this process, or nothing once an error has switched them off. What is called while
    a training runs raises nothing.
    """

    def __init__(self):
        self.steps, self._thread = None, None
        #: When the last operation with other ranks began, in any thread.
        self.launched = 0.0

    def start(self) -> bool:
        """Begins; whether there is anything to observe."""
        directory = profiler.directory()
        if self.steps is None and directory is not None:
            now, epoch_us = time.perf_counter(), time.time_ns() // 1000
            node = os.environ.get("SM_CURRENT_HOST") or socket.gethostname()
            self.steps = Steps(Timeline(directory, node, epoch_us), now, epoch_us, rank)
            self._thread = threading.get_ident()
            atexit.register(self.close)
            # Processes that load data are forked, and have no steps of their own.
            os.register_at_fork(after_in_child=self._stop)
        return self.steps is not None

    def _stop(self) -> None:
        self.steps = None

    def call(self, method: str, *arguments) -> None:
        """Calls a method of the steps."""
        steps = self.steps
        if steps is None:
            return
        try:
            getattr(steps, method)(*arguments)
        except Exception as error:
            self.steps = None
            get_logger().warning(f"the profiler's step times are off, the training continues: {place(error)}")

    def spent(self, part: str, begin: float) -> None:
        """A part of a step, in the thread that trains."""
        if self.steps is not None and threading.get_ident() == self._thread:
            self.call("spent", part, begin, time.perf_counter())

    def backward(self, original, *arguments, **options):
        """Does a backward pass, in the thread that trains."""
        steps = self.steps
        if steps is None or threading.get_ident() != self._thread:
            return original(*arguments, **options)
        begin, communicated = time.perf_counter(), steps.communicated()
        try:
            return original(*arguments, **options)
        finally:
            self.call("backward", begin, time.perf_counter(), communicated, self.launched)

    def follow_thread(self) -> None:
        """The calling thread is the one that trains."""
        self._thread = threading.get_ident()

    def close(self) -> None:
        """The program ends."""
        self.call("close", time.perf_counter())


OBSERVER = Observer()


def rank() -> int:
    """Rank of this process, as far as it is known without importing anything."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank()
    except (AttributeError, RuntimeError, ValueError):
        pass
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "HOROVOD_RANK", "PMI_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0
