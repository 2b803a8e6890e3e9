"""Checkpoints of a script: files `xgboost-checkpoint.N` in a directory. Training resumes from
the newest.
"""

import os
import re
from pathlib import Path

import xgboost

from sagemaker_xgboost_container.constants import CHECKPOINT_PREFIX

_KEPT = 5


def train(train_args: dict, checkpoint_dir: str) -> xgboost.Booster:
    """`xgboost.train(**train_args)` with checkpoints in `checkpoint_dir`, from the newest one
    there on. With one, only the rounds that remain are trained.
    """
    arguments = dict(train_args)
    path, iteration = load_checkpoint(checkpoint_dir)
    if path is not None:
        arguments["xgb_model"] = path
        print(f"Checkpoint loaded from {path}: resuming from iteration {iteration}", flush=True)
    arguments["num_boost_round"] = max(arguments.get("num_boost_round", 10) - iteration, 0)
    arguments["callbacks"] = [
        *(arguments.get("callbacks") or []),
        save_checkpoint(checkpoint_dir, start_iteration=iteration),
    ]
    return xgboost.train(**arguments)


def load_checkpoint(checkpoint_dir: str, max_try: int = 5) -> tuple[str | None, int]:
    """The newest checkpoint that can be read, of the `max_try` newest, and how many rounds it
    has; `None` and 0 without one.
    """
    for number, path in _checkpoints(checkpoint_dir)[:max_try]:
        try:
            xgboost.Booster(model_file=str(path))
        except xgboost.core.XGBoostError:
            continue
        return str(path), number + 1
    return None, 0


def save_checkpoint(
    checkpoint_dir: str, start_iteration: int = 0, iteration: int | None = None, end_iteration: int | None = None
):
    """A callback for `xgboost.train` that writes a checkpoint after each round and keeps the
    newest few. The first rank does.
    """
    Path(checkpoint_dir).mkdir(parents=True, exist_ok=True)
    if hasattr(xgboost.callback, "TrainingCallback"):
        return _saver(checkpoint_dir, start_iteration)

    def after_round(told) -> None:
        if told.rank == 0:
            _save(told.model, checkpoint_dir, start_iteration + told.iteration - told.begin_iteration)

    return after_round


def _saver(checkpoint_dir: str, start_iteration: int):
    class Saver(xgboost.callback.TrainingCallback):
        def __init__(self) -> None:
            super().__init__()
            self.next = start_iteration

        def after_iteration(self, model, epoch, evals_log) -> bool:
            if _rank() == 0:
                _save(model, checkpoint_dir, self.next)
            self.next += 1
            return False

    return Saver()


def _rank() -> int:
    ring = getattr(xgboost, "collective", None) or xgboost.rabit
    return ring.get_rank()


def _save(model: xgboost.Booster, checkpoint_dir: str, number: int) -> None:
    path = Path(checkpoint_dir) / f"{CHECKPOINT_PREFIX}.{number}"
    # Under another name until it is whole; the ending is how newer versions of XGBoost know the
    # format.
    whole = path.with_name(f".{path.name}.json")
    model.save_model(str(whole))
    os.replace(whole, path)
    for _, old in _checkpoints(checkpoint_dir)[_KEPT:]:
        old.unlink(missing_ok=True)


def _checkpoints(checkpoint_dir: str) -> list[tuple[int, Path]]:
    """Newest first."""
    found = Path(checkpoint_dir).glob(f"{CHECKPOINT_PREFIX}.*")
    numbered = [(re.fullmatch(rf"{CHECKPOINT_PREFIX}\.(\d+)", path.name), path) for path in found]
    return sorted(((int(match[1]), path) for match, path in numbered if match), reverse=True)
