"""The hook for XGBoost: `from smdebug.xgboost import Hook`, a callback of `xgboost.train`."""

from smdebug.core.collection import Collection, CollectionKeys
from smdebug.core.modes import ModeKeys as modes
from smdebug.core.reduction_config import ReductionConfig
from smdebug.core.save_config import SaveConfig, SaveConfigMode
from smdebug.core.singleton import del_hook, set_hook
from smdebug.trials import create_trial
from smdebug.xgboost.hook import Hook

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "create_trial",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]


def get_hook(json_config_path=None):
    """The process's hook, made of the platform's file if there is none yet and the file is there."""
    from smdebug.core import singleton

    return singleton.get_hook(Hook, json_config_path, create_if_not_exists=True)
