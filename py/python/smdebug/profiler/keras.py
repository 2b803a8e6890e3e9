"""Steps of Keras: a callback in each list of callbacks. What lies between two batches is waiting for
data (and other callbacks).
"""

import functools
import time

from smdebug.core.guard import place
from smdebug.core.logger import get_logger
from smdebug.profiler.steps import OBSERVER


def attach(keras) -> None:
    """Adds a callback to lists of callbacks."""
    if not OBSERVER.start():
        return
    original = keras.callbacks.CallbackList.__init__

    class StepTimes(keras.callbacks.Callback):
        """Sees batches begin and end."""

        waiting = None

        def on_epoch_begin(self, epoch, logs=None):
            """What was between epochs is the script's."""
            self.waiting = time.perf_counter()
            OBSERVER.follow_thread()
            OBSERVER.call("begin", self.waiting)

        def on_train_batch_begin(self, batch, logs=None):
            """A batch was there."""
            if self.waiting is not None:
                OBSERVER.spent("data", self.waiting)

        def on_train_batch_end(self, batch, logs=None):
            """A step has ended."""
            self.waiting = time.perf_counter()
            OBSERVER.call("end", self.waiting)

    @functools.wraps(original)
    def __init__(self, callbacks=None, *args, **kwargs):
        try:
            given = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
            if not any(isinstance(one, StepTimes) for one in given):
                callbacks = [*given, StepTimes()]
        except Exception as error:
            get_logger().warning(f"the profiler sees no steps of this training, which continues: {place(error)}")
        original(self, callbacks, *args, **kwargs)

    keras.callbacks.CallbackList.__init__ = __init__
