"""Large batch simulation of a job, from its environment: the number of workers, and what their
learning rates are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from shoal.parallel.whole import invalid

__all__ = ["rate_note", "simulated_rate_factor", "simulated_world"]

_VARIABLE = "SHOAL_SIMULATE_INSTANCES"
_RATE = "SHOAL_SIMULATE_RATE"


def simulated_world(environ: Mapping[str, str]) -> int | None:
    """How many workers the ranks are to train as; `None`: as many as there are.

    `SHOAL_SIMULATE_INSTANCES=X` in the environment, or the hyperparameter
    `shoal_simulate_instances` (`SM_HP_SHOAL_SIMULATE_INSTANCES`, `SM_HPS`): as on X instances, each
    with as many ranks as here (`LOCAL_WORLD_SIZE` of torchrun, `OMPI_COMM_WORLD_LOCAL_SIZE` of
    mpirun; 1 if neither is set). The variable wins over the hyperparameter. Raises `Invalid` for
    anything but a whole number from 1; whether the ranks divide the workers is checked by
    `Accumulation`.
    """
    asked = _setting(environ, _VARIABLE)
    if asked is None:
        return None
    instances = _whole(_VARIABLE, asked)
    each = next(
        (environ[name] for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE") if environ.get(name)), "1"
    )
    return instances * _whole("LOCAL_WORLD_SIZE", each)


def simulated_rate_factor(environ: Mapping[str, str], workers: int, ranks: int) -> float:
    """What a script's learning rates are multiplied by, where `ranks` train as `workers`.

    1 unless `SHOAL_SIMULATE_RATE=by_size` (or the hyperparameter `shoal_simulate_rate`) states that
    the script multiplies its rates by the number of ranks, as scripts for Horovod do: then workers
    / ranks, which makes them those of `workers` ranks. `ValueError` for another value.
    """
    asked = str(_setting(environ, _RATE) or "as_is").strip('"')
    if asked not in ("as_is", "by_size"):
        raise ValueError(
            f"{_RATE} is {asked!r}; give by_size where the script multiplies its learning rate by the number of ranks, else as_is"
        )
    return workers / ranks if asked == "by_size" else 1.0


def rate_note(factor: float, workers: int, size: str) -> str:
    """What a user should know of learning rates in a simulated job; `size` is what a script
    calls for the number of ranks.
    """
    if factor != 1.0:
        return f"learning rates are multiplied by {factor:g} while the optimizer steps ({_RATE}=by_size)"
    return f"where the script multiplies its learning rate by {size}, set {_RATE}=by_size, or multiply it by {workers} instead"


def _setting(environ: Mapping[str, str], name: str) -> object:
    return environ.get(name) or environ.get(f"SM_HP_{name}") or _of_all(environ.get("SM_HPS"), name.lower())


def _of_all(hyperparameters: str | None, name: str) -> object:
    try:
        found = json.loads(hyperparameters or "{}")
    except ValueError:
        return None
    return found.get(name) if isinstance(found, dict) else None


def _whole(name: str, value: object) -> int:
    # Hyperparameters arrive as JSON: "8" with its quotes, too.
    text = str(value).strip().strip('"')
    if not text.isdecimal() or int(text) < 1:
        raise invalid(name, f"{value!r} is no whole number from 1; give how many instances to train as", [1])
    return int(text)
