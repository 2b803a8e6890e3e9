"""Operations of graphs of TensorFlow 1 that wait for other ranks without keeping a thread of
TensorFlow.

Such a graph runs its ops in any order, and another order on each rank. If each waiting collective
kept a thread of TensorFlow (`TF_NUM_INTEROP_THREADS`), all threads could wait for collectives that
another rank cannot begin, because its threads wait likewise. So a collective is three ops here: one
begins it on a thread of our own, a loop asks whether it is done, and gives TensorFlow's thread back
between two questions, and the last one takes the results.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["compute"]

#: Bounds of how long one question keeps a thread, in seconds: the longer an operation waits, the
#: less often it is asked for.
LEAST_S, MOST_S = 0.0005, 0.02
#: So many waiting operations keep threads for that long; more share the time, for a cycle through
#: all must stay short.
MANY = 4
#: Results that nobody took, because the run of the graph failed, are kept as long as there are
#: fewer.
KEPT = 4096


class _Threads:
    """Daemon threads, as many as there are jobs at once: each may wait for the others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle = 0
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run(self, job: Callable[[], None]) -> None:
        """Runs it soon; returns at once."""
        with self._lock:
            found = self._idle > 0
            self._idle -= found
        self._jobs.put(job)
        if not found:
            threading.Thread(target=self._work, name="horovod-waiting", daemon=True).start()

    def _work(self) -> None:
        while True:
            self._jobs.get()()
            with self._lock:
                self._idle += 1


class _Job:
    """A function that runs, or has run."""

    def __init__(self, function: Callable[..., list[np.ndarray]], arrays: Sequence[np.ndarray]):
        self.done = threading.Event()
        self.begun = time.monotonic()
        self.error: BaseException | None = None
        self.results: list[np.ndarray] = []
        self._function, self._arrays = function, arrays

    def __call__(self) -> None:
        try:
            self.results = self._function(*self._arrays)
        except BaseException as error:
            self.error = error
        finally:
            self._arrays = ()
            self.done.set()


_threads = _Threads()
_numbers = itertools.count(1)
_jobs: dict[int, _Job] = {}


def _begin(function: Callable[..., list[np.ndarray]], arrays: Sequence[np.ndarray]) -> np.int64:
    number, job = next(_numbers), _Job(function, arrays)
    if len(_jobs) > KEPT:
        for old in [it for it, kept in list(_jobs.items())[: -KEPT // 2] if kept.done.is_set()]:
            _jobs.pop(old, None)
    _jobs[number] = job
    _threads.run(job)
    return np.int64(number)


def _is_done(number: np.int64) -> np.bool_:
    job = _jobs[int(number)]
    patience = min(max((time.monotonic() - job.begun) / 8, LEAST_S), MOST_S)
    return np.bool_(job.done.wait(patience * MANY / max(MANY, len(_jobs))))


def _take(number: np.int64) -> list[np.ndarray]:
    job = _jobs.pop(int(number))
    if job.error is not None:
        raise job.error
    return job.results


def compute(function: Callable[..., list[np.ndarray]], tensors: Sequence[Any], dtypes: Sequence[Any]) -> Any:
    """`function` of the tensors' arrays when the graph runs, as `tf.numpy_function`."""
    begun = tf.numpy_function(lambda *arrays: _begin(function, arrays), list(tensors), tf.int64)
    begun.set_shape([])

    def ask(number: Any, _: Any) -> list[Any]:
        # A loop keeps its thread, unless it waits for an op that goes on elsewhere: a batch of one
        # number is handed over by a thread of its own.
        handed = tf.raw_ops.Batch(
            in_tensors=[tf.reshape(number, [1])],
            num_batch_threads=1,
            max_batch_size=1,
            batch_timeout_micros=0,
            grad_timeout_micros=0,
            max_enqueued_batches=1 << 16,
            shared_name="horovod.tensorflow.waiting",
        )
        number = tf.reshape(handed.batched_tensors[0], [])
        done = tf.numpy_function(_is_done, [number], tf.bool)
        done.set_shape([])
        return [number, done]

    number, _ = tf.while_loop(
        lambda _, done: tf.logical_not(done), ask, [begun, tf.constant(False)], parallel_iterations=1
    )
    return tf.numpy_function(_take, [number], list(dtypes))
