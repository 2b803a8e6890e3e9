"""The one engine of operations by name that all adapters of a process use, from `init` to
`shutdown`.
"""

import atexit
import os
import threading

from shoal import named

from horovod.common.exceptions import HorovodInternalError

#: The error of calls before `init`.
NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."

_lock = threading.RLock()
_engine: named.NamedEngine | None = None
#: Number of engines that were started in this process: by it, adapters notice that their state
#: belongs to an earlier one.
generation = 0


def started() -> bool:
    """Whether there is an engine."""
    return _engine is not None


def current() -> named.NamedEngine:
    """The engine; `ValueError` before `init`."""
    if _engine is None:
        raise ValueError(NOT_INITIALIZED)
    return _engine


def start(settings: dict[str, str] | None = None) -> bool:
    """Joins the world as the environment and `settings` say. False if an engine is running
    already, which is kept.
    """
    global _engine, generation
    with _lock:
        if _engine is not None:
            return False
        _engine = named.start(settings)
        generation += 1
        return True


def stop() -> None:
    """Leaves the world. Operations under way fail on the ranks that wait for them."""
    global _engine
    with _lock:
        engine, _engine = _engine, None
    if engine is not None:
        engine.shutdown()


def failed(error: BaseException) -> HorovodInternalError:
    """Horovod's exception for a failed operation of the engine."""
    told = HorovodInternalError(str(error))
    told.ranks = getattr(error, "ranks", [])
    told.__cause__ = error
    return told


def flag(name: str) -> bool:
    """Whether a variable of the environment is set to something that is not 0."""
    return os.environ.get(name, "0").strip().lower() not in ("", "0", "false", "no", "off")


atexit.register(stop)
