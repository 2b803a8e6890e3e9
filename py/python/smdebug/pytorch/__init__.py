"""The hook for PyTorch: `import smdebug.pytorch as smd`."""

from smdebug.core.collection import Collection, CollectionKeys
from smdebug.core.modes import ModeKeys as modes
from smdebug.core.refused import SessionHook
from smdebug.core.reduction_config import ReductionConfig
from smdebug.core.save_config import SaveConfig, SaveConfigMode
from smdebug.core.singleton import del_hook, set_hook
from smdebug.pytorch.hook import Hook
from smdebug.trials import create_trial

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "SessionHook",
    "create_trial",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]


def get_hook(json_config_path=None, create_if_not_exists=False):
    """The process's hook; with `create_if_not_exists` made of the platform's file, if that is there."""
    from smdebug.core import singleton

    return singleton.get_hook(Hook, json_config_path, create_if_not_exists)
