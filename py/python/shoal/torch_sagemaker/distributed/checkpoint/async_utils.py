"""Checkpoints that are written while the training goes on."""

import atexit
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import torch.distributed as dist
from torch.distributed.checkpoint.utils import _DistWrapper

from torch.sagemaker.logger import get_logger

__all__ = ["AsyncCallsQueue"]


class _Call(NamedTuple):
    index: int
    ranks: _DistWrapper
    written: Future
    finish: Callable[[list[Any]], Any]


class AsyncCallsQueue:
    """Calls of `async_save` that are not over, oldest first. A thread writes; only the calling
    thread talks to other ranks, so that collectives of the training and of checkpoints keep one
    order.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._calls: deque[_Call] = deque()
        self._count = 0
        atexit.register(self._warn)

    def schedule(self, ranks: _DistWrapper, write: Callable[[], Any], finish: Callable[[list[Any]], Any]) -> int:
        """Starts to write on this rank; gives the call's index, from 1. `finish` gets all ranks'
        results, on the coordinator, when the call is finalised.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._count += 1
        self._calls.append(_Call(self._count, ranks, self._thread.submit(write), finish))
        return self._count

    def get_num_unfinalized_calls(self) -> int:
        """How many there are."""
        return len(self._calls)

    def maybe_finalize_async_calls(
        self, blocking: bool = False, process_group: dist.ProcessGroup | None = None
    ) -> list[int]:
        """Completes the calls that all their ranks have written, or with `blocking` all calls;
        the ranks that have saved call this alike. Gives their indices. Each call is finalised by
        the ranks that made it, whatever `process_group` is. Raises torch's `CheckpointException`
        on all of them if one could not write.
        """
        finalized = []
        while self._calls:
            call = self._calls[0]
            if not blocking and not all(call.ranks.all_gather_object(call.written.done())):
                break
            self._calls.popleft()
            call.ranks.all_reduce("write", call.written.result, call.finish)
            finalized.append(call.index)
        return finalized

    def close(self) -> None:
        """Waits for what is being written, and completes it."""
        self.maybe_finalize_async_calls(blocking=True)
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _warn(self) -> None:
        if self._calls:
            get_logger().warning(
                "%d asynchronous checkpoints were not completed and cannot be loaded: call maybe_finalize_async_calls(blocking=True) before the script ends",
                len(self._calls),
            )
