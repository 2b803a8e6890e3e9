"""The number of workers of large batch simulation, from the environment."""

from __future__ import annotations

import json
from collections.abc import Mapping

from shoal.parallel.whole import invalid

__all__ = ["simulated_world"]

_VARIABLE = "SHOAL_SIMULATE_INSTANCES"
_HYPERPARAMETER = "shoal_simulate_instances"


def simulated_world(environ: Mapping[str, str]) -> int | None:
    """How many workers the ranks are to train as; `None`: as many as there are.

    `SHOAL_SIMULATE_INSTANCES=X` in the environment, or the hyperparameter `shoal_simulate_instances` (`SM_HP_SHOAL_SIMULATE_INSTANCES`, `SM_HPS`): as on X instances, each with as
    many ranks as here (`LOCAL_WORLD_SIZE` of torchrun, `OMPI_COMM_WORLD_LOCAL_SIZE` of mpirun; 1 if neither is set). The variable wins over the
    hyperparameter. Raises `Invalid` for anything but a whole number from 1; whether the ranks divide the workers is checked by `Accumulation`.
    """
    asked = environ.get(_VARIABLE) or environ.get(f"SM_HP_{_HYPERPARAMETER.upper()}") or _of_all(environ.get("SM_HPS"))
    if asked is None:
        return None
    instances = _whole(_VARIABLE, asked)
    each = next((environ[name] for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE") if environ.get(name)), "1")
    return instances * _whole("LOCAL_WORLD_SIZE", each)


def _of_all(hyperparameters: str | None) -> object:
    try:
        found = json.loads(hyperparameters or "{}")
    except ValueError:
        return None
    return found.get(_HYPERPARAMETER) if isinstance(found, dict) else None


def _whole(name: str, value: object) -> int:
    # Hyperparameters arrive as JSON: "8" with its quotes, too.
    text = str(value).strip().strip('"')
    if not text.isdecimal() or int(text) < 1:
        raise invalid(name, f"{value!r} is no whole number from 1; give how many instances to train as", [1])
    return int(text)
