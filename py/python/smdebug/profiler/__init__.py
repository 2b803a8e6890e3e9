"""Step times of a training, as AWS's framework profiler writes its events, without a change of the
script: how long each step took, and how much of it was waiting for data, backward, the optimizer and
communication. Tensors are not looked at.
"""

import importlib
import json
import os

from smdebug.core.guard import place
from smdebug.core.logger import get_logger

__all__ = ["FRAMEWORKS", "attach", "directory"]

#: Modules, and what sees their steps, or the part of a step that they take.
FRAMEWORKS = {
    "horovod.torch.handles": "smdebug.profiler.communication",
    "keras": "smdebug.profiler.keras",
    "shoal.torch.collectives": "smdebug.profiler.communication",
    "shoal.torch.work": "smdebug.profiler.communication",
    "tf_keras": "smdebug.profiler.keras",
    "torch": "smdebug.profiler.pytorch",
    "xgboost": "smdebug.profiler.xgboost",
}
CONFIG_FILE_PATH_ENV_STR = "SMPROFILER_CONFIG_PATH"
DEFAULT_CONFIG_FILE_PATH = "/opt/ml/input/config/profilerconfig.json"
DEFAULT_DIRECTORY = "/opt/ml/output/profiler"


def directory() -> str | None:
    """Where events are written; nothing where the job has no profiler."""
    try:
        with open(os.environ.get(CONFIG_FILE_PATH_ENV_STR, DEFAULT_CONFIG_FILE_PATH)) as file:
            config = {name.lower(): value for name, value in json.load(file).items()}
    except FileNotFoundError:
        return None
    return None if config.get("disableprofiler") else config.get("localpath") or DEFAULT_DIRECTORY


def attach(module) -> None:
    """Attaches to this framework. Never raises: the script would not have."""
    try:
        found = FRAMEWORKS.get(module.__name__)
        if found is not None:
            importlib.import_module(found).attach(module)
    except Exception as error:
        get_logger().warning(f"the profiler sees no steps of {module.__name__}, the training continues: {place(error)}")
