"""The hook for TensorFlow 2 and its Keras: `import smdebug.tensorflow as smd`."""

from smdebug.core.collection import Collection, CollectionKeys
from smdebug.core.modes import ModeKeys as modes
from smdebug.core.reduction_config import ReductionConfig
from smdebug.core.refused import EstimatorHook, SessionHook
from smdebug.core.save_config import SaveConfig, SaveConfigMode
from smdebug.core.singleton import del_hook, set_hook
from smdebug.keras import KerasHook, get_hook
from smdebug.trials import create_trial

__all__ = [
    "Collection",
    "CollectionKeys",
    "EstimatorHook",
    "KerasHook",
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
