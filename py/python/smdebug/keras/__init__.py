"""The hook for Keras, 3 with any of its backends, or 2: `from smdebug.keras import KerasHook`."""

from smdebug.core.collection import Collection, CollectionKeys
from smdebug.core.modes import ModeKeys as modes
from smdebug.core.reduction_config import ReductionConfig
from smdebug.core.save_config import SaveConfig, SaveConfigMode
from smdebug.keras.hook import KerasHook
from smdebug.trials import create_trial

__all__ = [
    "Collection",
    "CollectionKeys",
    "KerasHook",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "create_trial",
    "get_hook",
    "modes",
]


def get_hook(json_config_path=None, create_if_not_exists=False):
    """The process's hook; with `create_if_not_exists` made of the platform's file, if that is there."""
    from smdebug.core import singleton

    return singleton.get_hook(KerasHook, json_config_path, create_if_not_exists)
