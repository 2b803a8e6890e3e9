"""The hook for Keras by itself: a callback in each list of callbacks, of `fit`, `evaluate` and
`predict`.
"""

import functools

from smdebug import automatic
from smdebug.core.guard import place
from smdebug.core.hook import BaseHook
from smdebug.core.logger import get_logger


def attach(keras) -> None:
    """Adds the hook to lists of callbacks that have none."""
    original = keras.callbacks.CallbackList.__init__
    #: The hook: None before the first list, False where there is none to be.
    made = [None]

    def hook():
        if made[0] is None:
            from smdebug.keras import KerasHook

            own = automatic.own_hook()
            made[0] = False if own is not None else automatic.make(KerasHook) or False
        return made[0]

    @functools.wraps(original)
    def __init__(self, callbacks=None, *args, **kwargs):
        try:
            given = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
            if not any(isinstance(one, BaseHook) for one in given):
                found = hook()
                if found and not found.failed:
                    callbacks = [*given, found]
        except Exception as error:
            get_logger().warning(f"Debugger does not see this training, which continues: {place(error)}")
        original(self, callbacks, *args, **kwargs)

    keras.callbacks.CallbackList.__init__ = __init__
