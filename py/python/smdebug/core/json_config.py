"""The platform's files for the hook (`debughookconfig.json`, `tensorboardoutputconfig.json`) as the
arguments of a hook and its collections. All values in them are texts.
"""

import json
import os
import re

from smdebug.core.modes import ModeKeys
from smdebug.core.reduction_config import ReductionConfig
from smdebug.core.save_config import SaveConfig, SaveConfigMode
from smdebug.exceptions import SMDebugValueError

CONFIG_FILE_PATH_ENV_STR = "SMDEBUG_CONFIG_FILE_PATH"
DEFAULT_CONFIG_FILE_PATH = "/opt/ml/input/config/debughookconfig.json"
TENSORBOARD_CONFIG_FILE_PATH_ENV_STR = "TENSORBOARD_CONFIG_FILE_PATH"
DEFAULT_SAGEMAKER_TENSORBOARD_PATH = "/opt/ml/input/config/tensorboardoutputconfig.json"
DEFAULT_SAGEMAKER_OUTDIR = "/opt/ml/output/tensors"
DEFAULT_WORKER_NAME = "worker_0"
_COMMA = re.compile(r",\s*")


def is_sagemaker_job() -> bool:
    """Whether the platform runs this, and ends the run's files itself."""
    return bool(os.environ.get("TRAINING_JOB_NAME"))


def config_path(given: str | None = None) -> str:
    """The file with what is saved."""
    return given or os.environ.get(CONFIG_FILE_PATH_ENV_STR, DEFAULT_CONFIG_FILE_PATH)


def read_config(given: str | None = None) -> dict:
    """The file's content; FileNotFoundError where there is none."""
    with open(config_path(given)) as file:
        return json.load(file)


def tensorboard_dir() -> str | None:
    """Where the platform collects TensorBoard's files; nothing where it does not."""
    path = os.environ.get(TENSORBOARD_CONFIG_FILE_PATH_ENV_STR, DEFAULT_SAGEMAKER_TENSORBOARD_PATH)
    try:
        with open(path) as file:
            return json.load(file).get("LocalPath")
    except FileNotFoundError:
        return None


def parse_bool(text, default: bool = False) -> bool:
    """A truth value, as text or not."""
    if text is None:
        return default
    if isinstance(text, bool):
        return text
    if str(text).lower() in ("true", "false"):
        return str(text).lower() == "true"
    raise SMDebugValueError(f"boolean argument expected, but found {text}")


def split(text: str) -> list[str]:
    """The parts between commas."""
    return [part for part in _COMMA.split(text.strip()) if part]


def _steps(params: dict, prefix: str) -> dict:
    found = {}
    for name in ("save_interval", "start_step", "end_step"):
        if prefix + name in params:
            found[name] = params[prefix + name]
    if prefix + "save_steps" in params:
        try:
            found["save_steps"] = [int(step) for step in split(params[prefix + "save_steps"])]
        except ValueError:
            raise SMDebugValueError(
                f"{prefix}save_steps={params[prefix + 'save_steps']} must be whole numbers with commas between them"
            ) from None
    return found


def _by_mode(params: dict, base: dict | None = None) -> dict:
    everywhere = _steps(params, "")
    return {
        mode: (base or {}).get(mode, {}) | everywhere | _steps(params, f"{mode.name.lower()}.") for mode in ModeKeys
    }


def _collections(config: dict) -> list[tuple[str, dict]]:
    found = []
    for one in config.get("CollectionConfigurations") or ():
        if "CollectionName" not in one:
            raise SMDebugValueError("Must specify 'CollectionName' in JSON config.")
        found.append((one["CollectionName"], one.get("CollectionParameters") or {}))
    return found


def hook_arguments(config: dict, default_values: dict | None = None) -> dict:
    """The arguments with which a hook is made of a configuration."""
    params = config.get("HookParameters") or {}
    names = [name for name, _ in _collections(config)]
    given = {
        "out_dir": config.get("LocalPath") or DEFAULT_SAGEMAKER_OUTDIR,
        "save_config": SaveConfig.from_dict(_by_mode(params), default_values),
        "reduction_config": ReductionConfig.from_dict(params) if "reductions" in params else None,
        "include_regex": split(params["include_regex"]) if "include_regex" in params else None,
        "include_collections": names if config.get("CollectionConfigurations") is not None else None,
        "save_all": parse_bool(params.get("save_all")),
        "include_workers": params.get("include_workers", "one"),
    }
    if is_sagemaker_job():
        # On the platform its own file decides.
        given["tensorboard_dir"] = tensorboard_dir()
        given["export_tensorboard"] = given["tensorboard_dir"] is not None
    else:
        given["tensorboard_dir"] = params.get("tensorboard_dir")
        given["export_tensorboard"] = parse_bool(params.get("export_tensorboard"))
    return given


def configure_collections(manager, config: dict, default_values: dict | None = None) -> None:
    """What the configuration has of each collection. One that is there several times, as when rules of
    the SDK bring their own, is saved for all of them: a request has them in no order.
    """
    hook_params = config.get("HookParameters") or {}
    base = _by_mode(hook_params)
    configured = set()
    for name, params in _collections(config):
        collection = manager.get(name)
        modes = _by_mode(params, base).items()
        steps = {mode: SaveConfigMode.from_dict(steps, default_values) for mode, steps in modes}
        # Without reductions those of the hook apply, or else whole tensors are saved.
        reduced = next((one for one in (params, hook_params) if "reductions" in one), None)
        reductions = ReductionConfig.from_dict(reduced) or ReductionConfig(save_raw_tensor=True)
        histogram = parse_bool(params.get("save_histogram"), True)
        if name in configured:
            steps = {mode: one.joined(collection.save_config.get_save_config(mode)) for mode, one in steps.items()}
            reductions = reductions.joined(collection.reduction_config)
            histogram = histogram or collection.save_histogram
        configured.add(name)
        collection.save_config, collection.reduction_config = steps, reductions
        collection.save_histogram = histogram
        if "include_regex" in params:
            collection.include(split(params["include_regex"]))


def create_hook_from_json_config(hook_cls, json_config_path=None, default_values=None):
    """A hook of the configuration; FileNotFoundError where there is no file."""
    config = read_config(json_config_path)
    hook = hook_cls(**hook_arguments(config, default_values))
    configure_collections(hook.collection_manager, config, default_values)
    return hook
