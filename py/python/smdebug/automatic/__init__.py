"""The hook without a line in the script: when a framework has been imported and the platform's file
(`debughookconfig.json`) is there, a hook attaches itself. `sitecustomize` of the platform (see
crates/agent/python) calls `attach` for each framework after its import.

A hook is made when training begins, unless the script has made one by then: scripts that use
`smdebug` themselves are left to it.
"""

import importlib

from smdebug.core.guard import place
from smdebug.core.json_config import configure_collections, hook_arguments, read_config
from smdebug.core.logger import get_logger
from smdebug.core.singleton import get_hook

__all__ = ["FRAMEWORKS", "attach", "make", "own_hook"]

#: Modules, and what attaches to them.
FRAMEWORKS = {
    "keras": "smdebug.automatic.keras",
    "sklearn": "smdebug.automatic.sklearn",
    "tf_keras": "smdebug.automatic.keras",
    "torch": "smdebug.automatic.pytorch",
    "xgboost": "smdebug.automatic.xgboost",
}


def attach(module) -> None:
    """Attaches to this framework. Never raises: the script would not have."""
    try:
        importlib.import_module(FRAMEWORKS[module.__name__]).attach(module)
    except Exception as error:
        get_logger().warning(f"Debugger does not see {module.__name__}, the training continues: {place(error)}")


def own_hook():
    """The hook that the script has made."""
    hook = get_hook()
    return None if hook is None or hook.is_automatic else hook


def make(hook_class):
    """A hook of the platform's file; nothing, and a warning, where it cannot be made."""
    try:
        config = read_config()
        arguments = hook_arguments(config, hook_class.DEFAULT_VALUES)
        made = hook_class(**arguments)
        made.is_automatic = True
        configure_collections(made.collection_manager, config, hook_class.DEFAULT_VALUES)
        return made
    except Exception as error:
        get_logger().warning(f"Debugger's hook is off, the training continues: {place(error)}")
        return None
