"""The hook for XGBoost by itself: a callback of each training, of `xgboost.train` and of estimators
in scikit-learn's manner, which call that.
"""

import functools

from smdebug import automatic
from smdebug.core.guard import place
from smdebug.core.logger import get_logger


class Seen:
    """The hook of this process: None before the first training, False where there is none to be."""

    hook = None

    def hook_for(self, params, train_data, evals):
        """The hook, which gets what this training is of."""
        if self.hook is None:
            from smdebug.xgboost.hook import Hook

            own = automatic.own_hook()
            self.hook = False if own is not None else automatic.make(Hook) or False
        hook = self.hook
        if hook:
            hook.hyperparameters = dict(params or {})
            hook.train_data = train_data
            hook.validation_data = next((data for data, _ in reversed(evals or ())), None)
        return hook


def attach(xgboost) -> None:
    """Adds the hook to the callbacks of all trainings."""
    original, seen = xgboost.train, Seen()
    is_function = not hasattr(getattr(xgboost, "callback", None), "TrainingCallback")

    @functools.wraps(original)
    def train(params, dtrain, *args, **kwargs):
        from smdebug.core.hook import BaseHook

        callbacks = list(kwargs.get("callbacks") or ())
        try:
            # Before 1.3 `evals` could stand behind the number of rounds; it still may.
            evals = kwargs.get("evals") or (args[1] if is_function and len(args) > 1 else None)
            has_own = any(isinstance(one, BaseHook) for one in callbacks)
            hook = None if has_own else seen.hook_for(params, dtrain, evals)
            if hook and not hook.failed:
                kwargs["callbacks"] = [*callbacks, hook]
        except Exception as error:
            get_logger().warning(f"Debugger does not see this training, which continues: {place(error)}")
        return original(params, dtrain, *args, **kwargs)

    xgboost.train = train
    for name in ("training", "sklearn"):
        module = getattr(xgboost, name, None)
        if getattr(module, "train", None) is original:
            module.train = train
