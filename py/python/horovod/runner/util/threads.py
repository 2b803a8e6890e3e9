"""Functions in threads of their own."""

import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def _checked(args) -> tuple:
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args)}, for a single argument use (arg,)")
    return args


def in_thread(
    target: Callable, args: tuple = (), name: str | None = None, daemon: bool = True, silent: bool = False
) -> threading.Thread:
    """Calls a function in a new thread, which is returned. What it raises is printed, unless
    `silent`.
    """
    _checked(args)

    def run() -> None:
        try:
            target(*args)
        except Exception:  # no caller waits for a result
            if not silent:
                traceback.print_exc(file=sys.stderr)

    thread = threading.Thread(target=run, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable,
    args: tuple = (),
    stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Calls a function in a new thread when an event is set, unless `stop` was set before, which
    is looked at each `check_stop_interval_s` seconds.
    """
    if event is None:
        raise ValueError("Event must not be None")
    _checked(args)
    if stop is None and not daemon:
        raise ValueError("Stop event must be given for non-daemon event thread")

    def wait() -> None:
        while not event.wait(None if stop is None else check_stop_interval_s):
            if stop.is_set():
                return
        func(*args)

    return in_thread(wait, daemon=daemon, silent=silent)


def execute_function_multithreaded(
    fn: Callable, args_list: list, block_until_all_done: bool = True, max_concurrent_executions: int = 1000
) -> dict | None:
    """Calls a function with each of the argument lists, in threads. What it returned by the
    lists' numbers; None at once without `block_until_all_done`.
    """
    pool = ThreadPoolExecutor(max(1, min(max_concurrent_executions, len(args_list))))
    calls = [pool.submit(fn, *args) for args in args_list]
    pool.shutdown(wait=block_until_all_done)
    if not block_until_all_done:
        return None
    if any(it.exception() is not None for it in calls):
        raise RuntimeError(f"Some threads for func {fn.__name__} did not complete successfully.")
    return {number: it.result() for number, it in enumerate(calls)}
