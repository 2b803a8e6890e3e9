"""Elastic training: state that survives changes of the workers, and the loop that goes on after
them.
"""

import copy
import functools
import os
import queue
import sys
import time
from collections.abc import Callable

from shoal.comm import CommError, PeerHung

from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.runner.elastic.worker import HostUpdateResult, WorkerNotificationManager, next_world

#: Hears of hosts that come and go, from the launcher.
notification_manager = WorkerNotificationManager()

#: How often the world may fail to form in a row.
ATTEMPTS = 5


class State:
    """What a training keeps in memory to go on after a change of the workers.

    bcast_object: gives rank 0's object to all. get_rank: this worker's number. A subclass says how
    to `save`, `restore` and `sync`.
    """

    def __init__(self, bcast_object: Callable, get_rank: Callable[[], int]):
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.Queue = queue.Queue()
        self._last_updated_timestamp = 0
        self._reset_callbacks: list[Callable[[], object]] = []

    def register_reset_callbacks(self, callbacks: list[Callable[[], object]]) -> None:
        """Functions to call after each change of the workers, before the state is synchronised:
        as to scale the learning rate to the new size.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """The workers have changed: forgets what was heard of hosts, resets the values, calls
        the callbacks.
        """
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: HostUpdateResult) -> None:
        """Hosts have come or gone, says the launcher; the next `check_host_updates` acts on it."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Saves the state in memory, then looks for changes of the hosts. It costs a copy of the
        state: call it seldom, or `check_host_updates` in between.
        """
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises `HostsUpdatedInterrupt` on all workers at the same place, if the launcher has
        said that hosts have come or will go.
        """
        before = latest = self._last_updated_timestamp
        changes = HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, update = self._host_messages.get()
            if timestamp > latest:
                latest = timestamp
                changes |= update
        # Rank 0 is the one that the launcher tells.
        before, self._last_updated_timestamp, changes = self._bcast_object((before, latest, changes))
        if self._last_updated_timestamp > before:
            # Where hosts only went, all that stay have the same state.
            raise HostsUpdatedInterrupt(changes == HostUpdateResult.removed)

    def save(self) -> None:
        """Keeps the state in memory."""
        raise NotImplementedError(f"{type(self).__name__} has to say how its values are saved: define save()")

    def restore(self) -> None:
        """Goes back to what was saved last."""
        raise NotImplementedError(f"{type(self).__name__} has to say how its values are restored: define restore()")

    def sync(self) -> None:
        """Gives rank 0's state to all."""
        raise NotImplementedError(
            f"{type(self).__name__} has to say how its values are given to all workers: define sync()"
        )

    def reset(self) -> None:
        """What has to be done to the values when the workers have changed; nothing, unless a
        subclass says so.
        """


class ObjectState(State):
    """Python objects, given by name, which become attributes."""

    def __init__(self, bcast_object: Callable, get_rank: Callable[[], int], **kwargs):
        super().__init__(bcast_object=bcast_object, get_rank=get_rank)
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._saved_state = {name: _copy(value) for name, value in kwargs.items()}

    def save(self) -> None:
        """Keeps copies of the attributes."""
        self._saved_state = {name: _copy(getattr(self, name)) for name in self._saved_state}

    def restore(self) -> None:
        """Sets the attributes to what was saved last."""
        for name, value in self._saved_state.items():
            setattr(self, name, _copy(value))

    def sync(self) -> None:
        """All workers get rank 0's attributes as they are now, and keep them."""
        if self._saved_state:
            now = self._bcast_object({name: getattr(self, name) for name in self._saved_state})
            for name, value in now.items():
                setattr(self, name, value)
            ObjectState.save(self)


def _copy(value):
    """A deep copy; the object itself where it allows none, as one that has a lock."""
    try:
        return copy.deepcopy(value)
    except TypeError:
        return value


class _Agreement:
    """What this worker reports to the launcher before it joins the next world."""

    #: Whether it would skip the synchronisation of the states; after the report, whether all
    #: workers do.
    skip_sync = False
    #: Ranks of the present world that hung. The launcher itself learns of a process that ended,
    #: whether it was killed or has left.
    hung: list[int] = []


_agreement = _Agreement()


def run_fn(func: Callable, reset: Callable[[], None]) -> Callable:
    """`func(state, ...)` in a loop: synchronises the state, calls it, and returns what it
    returns. After a failed operation the state goes back to the last commit; after a change of
    the hosts it goes on as it is. `reset` leaves the world and joins the new one.
    """

    @functools.wraps(func)
    def wrapper(state, *args, **kwargs):
        missing = [name for name in ("sync", "restore", "on_reset") if not callable(getattr(state, name, None))]
        if missing:
            what = f"{func.__name__}: the first argument is a {type(state).__name__}, which has no {', '.join(missing)}"
            raise TypeError(f"{what}; give a state of hvd.elastic, such as TorchState or TensorFlowKerasState")
        notification_manager.init()
        notification_manager.register_listener(state)
        skip_sync = False
        try:
            while True:
                try:
                    if not skip_sync:
                        state.sync()
                    return func(state, *args, **kwargs)
                except HorovodInternalError as error:
                    why = str(error)
                    # The error itself may have no ranks: some operations of TensorFlow raise their
                    # own.
                    cause = error.__cause__
                    _agreement.hung = cause.ranks if isinstance(cause, PeerHung) else []
                    state.restore()
                    skip_sync = False
                except HostsUpdatedInterrupt as interrupt:
                    why = str(interrupt)
                    skip_sync = interrupt.skip_sync
                begun = time.monotonic()
                _agreement.skip_sync = skip_sync
                reset()
                state.on_reset()
                skip_sync = _agreement.skip_sync
                if os.environ.get("HOROVOD_LOG_LEVEL", "").lower() in ("trace", "debug", "info"):
                    print(
                        f"horovod: a new world in {time.monotonic() - begun:.2f} s after: {why}",
                        file=sys.stderr,
                        flush=True,
                    )
        finally:
            notification_manager.remove_listener(state)

    return wrapper


def renew(init: Callable[[], None], shutdown: Callable[[], None]) -> None:
    """Leaves the world and joins the next one. A worker that is lost while the next one forms
    leads to another one.
    """
    for attempt in range(ATTEMPTS):
        shutdown()
        # Hosts may have come since this worker heard that some have gone, and another worker may
        # come from a failed operation.
        agreed = next_world(_agreement.skip_sync, _agreement.hung)
        _agreement.hung = []
        if agreed is not None:
            _agreement.skip_sync = agreed
        try:
            return init()
        except (CommError, HorovodInternalError) as error:
            if attempt == ATTEMPTS - 1:
                raise HorovodInternalError(
                    f"the workers could not form a new world in {ATTEMPTS} attempts: {error}"
                ) from error
