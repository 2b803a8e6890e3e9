"""Steps of XGBoost: its rounds."""

import functools
import time

from smdebug.core.guard import place
from smdebug.core.logger import get_logger
from smdebug.profiler.steps import OBSERVER


def attach(xgboost) -> None:
    """Adds a callback to all trainings."""
    base = getattr(getattr(xgboost, "callback", None), "TrainingCallback", None)
    # Versions before 1.3 call functions back, which this does not.
    if base is None or not OBSERVER.start():
        return
    original = xgboost.train

    class StepTimes(base):
        """Sees rounds begin and end."""

        def before_iteration(self, model, epoch, evals_log):
            """A round begins."""
            OBSERVER.call("begin", time.perf_counter())
            return False

        def after_iteration(self, model, epoch, evals_log):
            """A round has ended."""
            OBSERVER.call("end", time.perf_counter())
            return False

    @functools.wraps(original)
    def train(*args, **kwargs):
        try:
            callbacks = list(kwargs.get("callbacks") or ())
            if not any(isinstance(one, StepTimes) for one in callbacks):
                kwargs["callbacks"] = [*callbacks, StepTimes()]
        except Exception as error:
            get_logger().warning(f"the profiler sees no steps of this training, which continues: {place(error)}")
        return original(*args, **kwargs)

    xgboost.train = train
    for name in ("training", "sklearn"):
        module = getattr(xgboost, name, None)
        if getattr(module, "train", None) is original:
            module.train = train
