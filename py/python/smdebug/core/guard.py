"""The training is worth more than what is seen of it: an error within a hook's callback is logged
once and switches the hook off.
"""

import functools
import traceback


def guarded(method):
    """A callback of a hook (which has `failed` and `give_up`): it raises nothing, and does nothing
    once the hook is off.
    """

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        if self.failed:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.give_up(error)
            return None

    return call


def place(error: BaseException) -> str:
    """The error and where it was raised, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
