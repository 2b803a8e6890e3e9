"""Large batch simulation of a job: `SHOAL_SIMULATE_INSTANCES`, or the hyperparameter of that
name in small letters.
"""

from __future__ import annotations

import os

from horovod.common.engine import current, started
from shoal.parallel import simulated_rate_factor, simulated_world

__all__ = ["is_requested", "is_requested_for", "rate_factor", "refuse", "workers"]

_VARIABLE = "SHOAL_SIMULATE_INSTANCES"


def is_requested() -> bool:
    """Whether the job asks for it, for however many instances. `shoal.parallel.Invalid` for a
    number that is none.
    """
    return simulated_world(os.environ) is not None


def is_requested_for(what: str) -> bool:
    """The same; `ValueError` before `init`, when `what` cannot know how many ranks there are."""
    if is_requested() and not started():
        raise ValueError(
            f"this job is simulated ({_VARIABLE}, or its hyperparameter): call hvd.init() before {what} is made"
        )
    return is_requested()


def workers() -> int:
    """The number of ranks that this world trains as: its own size where nothing is simulated.
    `ValueError` before `init`.
    """
    engine = current()
    if not is_requested():
        return engine.size
    # Each simulated instance has as many ranks as this one.
    return simulated_world({**os.environ, "LOCAL_WORLD_SIZE": str(engine.local_size)}) or engine.size


def rate_factor() -> float:
    """What the script's learning rates are multiplied by: see
    `shoal.parallel.simulated_rate_factor`.
    """
    return simulated_rate_factor(os.environ, workers(), current().size) if is_requested() else 1.0


def refuse(what: str, instead: str) -> None:
    """`ValueError` where the job is simulated on fewer ranks, which `what` cannot do."""
    if not is_requested_for(what) or workers() == current().size:
        return
    raise ValueError(f"{_VARIABLE}: {what} cannot be simulated on fewer ranks; use {instead}, or unset the variable")
