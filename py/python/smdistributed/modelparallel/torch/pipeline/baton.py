"""Threads of which one computes at a time: the one that has the baton, until it waits or is
done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import torch

__all__ = ["Abandoned", "Baton", "Task"]


class Abandoned(BaseException):
    """The step failed elsewhere: a waiting thread unwinds."""


class Task:
    """Work that may wait in the middle. `turn`: its priority; the lowest gets the baton first."""

    def __init__(
        self, run: Callable[[], None], turn: tuple[int, ...], label: tuple[str, int], name: tuple[int, ...]
    ) -> None:
        self.run = run
        #: The same on all ranks of a tensor parallel group.
        self.name = name
        self.turn = turn
        #: Its label and microbatch, for the timeline.
        self.label = label
        self.begun = False
        self.over = False
        #: Whether a waiting task can go on; None if it does not wait.
        self.until: Callable[[], bool] | None = None
        self.worker: _Worker | None = None

    def ready(self) -> bool:
        """Whether it can go on."""
        return self.until is None or self.until()


class _Worker:
    """A thread that does one task after another."""

    def __init__(self, baton: Baton) -> None:
        self.go = threading.Semaphore(0)
        self.task: Task | None = None
        self.baton = baton
        threading.Thread(target=self._serve, name="smp-frame", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self.go.acquire()
            task = self.task
            try:
                with self.baton.surroundings():
                    task.run()
            except Abandoned:
                pass
            except BaseException as error:
                self.baton.error = self.baton.error or error
            task.over = True
            self.task = None
            self.baton.back.release()


class Baton:
    """The right to compute. Each step has one; the threads serve later steps too."""

    def __init__(self, workers: list[_Worker]) -> None:
        self.back = threading.Semaphore(0)
        self.idle = workers
        for worker in workers:
            worker.baton = self
        self.current: Task | None = None
        self.error: BaseException | None = None
        self.failed = False
        #: (label, microbatch, begin, end) in seconds of `time.perf_counter`.
        self.timeline: list[tuple[str, int, float, float]] = []
        self._grad = torch.is_grad_enabled()
        self._device = torch.cuda.current_device() if torch.cuda.is_available() else None
        kinds = ["cpu"] + (["cuda"] if self._device is not None else [])
        self._autocast = [(kind, torch.get_autocast_dtype(kind)) for kind in kinds if torch.is_autocast_enabled(kind)]

    def surroundings(self) -> ExitStack:
        """Gives a thread the modes of the thread that called the step: gradients, autocast,
        device.
        """
        stack = ExitStack()
        stack.enter_context(torch.set_grad_enabled(self._grad))
        # Backward passes run on the thread that asks for them, so that a wait in one holds up
        # nothing else.
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        for kind, dtype in self._autocast:
            stack.enter_context(torch.autocast(kind, dtype))
        if self._device is not None:
            stack.enter_context(torch.cuda.device(self._device))
        return stack

    def give(self, task: Task) -> None:
        """Lets a task compute until it waits or is over."""
        begin = time.perf_counter()
        self.current = task
        if not task.begun:
            task.begun = True
            task.worker = self.idle.pop() if self.idle else _Worker(self)
            task.worker.task = task
        task.until = None
        worker = task.worker
        worker.go.release()
        self.back.acquire()
        self.current = None
        self.timeline.append((*task.label, begin, time.perf_counter()))
        if task.over:
            self.idle.append(worker)

    def wait(
        self, until: Callable[[], bool], label: tuple[str, int] | None = None, turn: tuple[int, ...] | None = None
    ) -> None:
        """The running task waits; it may go on with another turn and under another label."""
        task = self.current
        if label is not None:
            task.label = label
        if turn is not None:
            task.turn = turn
        if until():
            return
        task.until = until
        self.back.release()
        task.worker.go.acquire()
        if self.failed:
            raise Abandoned

    def abandon(self, tasks: list[Task]) -> None:
        """Unwinds all waiting tasks."""
        self.failed = True
        for task in tasks:
            if task.begun and not task.over:
                self.give(task)
