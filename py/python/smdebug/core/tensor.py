"""A tensor of a trial: where its values are, by mode, step and worker."""

import bisect
from enum import Enum
from typing import NamedTuple

from smdebug.core.modes import ModeKeys
from smdebug.core.reductions import get_numpy_reduction
from smdebug.exceptions import (
    InvalidWorker,
    NoMoreData,
    ShapeUnavailableForStep,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailableForStep,
)


class StepState(Enum):
    """Whether all workers have saved a step."""

    UNAVAILABLE = 0
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2


class Location(NamedTuple):
    """A record of a file of events."""

    file: str
    at: int
    length: int


class Saved:
    """What one worker saved of a tensor at one step."""

    def __init__(self):
        self.location = self.shape = self.value = None
        #: By name, and whether it is of absolute values.
        self.reductions = {}


class Tensor:
    """A tensor by its name. Steps are numbers of the mode that is asked for."""

    def __init__(self, name, trial, cache):
        self.name, self.original_name = name, None
        self.trial, self.cache = trial, cache
        #: By mode and its step: what each worker saved.
        self._saved = {}

    def at(self, mode, mode_step, worker) -> Saved:
        """The place for what a worker saved."""
        return self._saved.setdefault((mode, mode_step), {}).setdefault(worker, Saved())

    def steps(self, mode=ModeKeys.GLOBAL, show_incomplete_steps=False) -> list[int]:
        """Steps at which it was saved, by all workers unless incomplete ones are asked for."""
        self.trial.maybe_refresh()
        if mode == ModeKeys.GLOBAL:
            found = sorted(self.trial.global_step(*key) for key in self._saved)
        else:
            found = sorted(step for key, step in self._saved if key == mode)
        if show_incomplete_steps:
            return found
        return [step for step in found if self.trial.is_complete(self.trial.global_step(mode, step))]

    def prev_steps(self, step, n=None, mode=ModeKeys.GLOBAL) -> list[int]:
        """The last `n` steps, or all of them, up to this one."""
        steps = self.steps(mode)
        steps = steps[: bisect.bisect_right(steps, step)]
        return steps[-n:] if n else steps

    def _workers_at(self, step, mode) -> dict | None:
        found = self._saved.get((mode, step))
        if found is None and mode == ModeKeys.GLOBAL:
            found = self._saved.get(self.trial.mode_modestep(step))
        return found

    def workers(self, step_num, mode=ModeKeys.GLOBAL) -> list[str]:
        """Workers that saved it at this step."""
        found = self._workers_at(step_num, mode)
        if found is None:
            raise TensorUnavailableForStep(self.name, step_num, mode)
        return sorted(found)

    def _find(self, step, mode, worker) -> Saved:
        found = self._workers_at(step, mode)
        if found is None:
            self.trial.maybe_refresh()
            found = self._workers_at(step, mode)
        if found is None:
            self._raise_missing(step, mode)
        if worker is not None and worker not in found:
            raise InvalidWorker(worker)
        return found[sorted(found)[0] if worker is None else worker]

    def _raise_missing(self, step, mode):
        state = self.trial.has_passed_step(step, mode)
        if state == StepState.AVAILABLE:
            raise TensorUnavailableForStep(self.name, step, mode)
        if state == StepState.UNAVAILABLE:
            raise StepUnavailable(step, mode)
        if self.trial.loaded_all_steps:
            steps = self.trial.steps(mode)
            raise NoMoreData(step, mode, steps[-1] if steps else -1)
        raise StepNotYetAvailable(step, mode)

    def value(self, step_num, mode=ModeKeys.GLOBAL, worker=None):
        """Its value at a step: of that worker, or of the first one."""
        saved = self._find(step_num, mode, worker)
        if saved.value is not None:
            return saved.value
        if saved.location is None:
            raise TensorUnavailableForStep(self.name, step_num, mode, bool(saved.reductions))
        value = self.trial.fetch(saved.location)
        if self.cache:
            saved.value = value
        return value

    def values(self, mode=ModeKeys.GLOBAL, worker=None) -> dict:
        """Its values by step."""
        return {step: self.value(step, mode, worker) for step in self.steps(mode)}

    def shape(self, step_num, mode=ModeKeys.GLOBAL, worker=None) -> tuple[int, ...]:
        """Its shape at a step."""
        saved = self._find(step_num, mode, worker)
        if saved.shape is not None:
            return saved.shape
        try:
            return self.value(step_num, mode, worker).shape
        except TensorUnavailableForStep:
            raise ShapeUnavailableForStep(self.name, step_num, mode) from None

    def reduction_value(self, step_num, reduction_name, mode=ModeKeys.GLOBAL, worker=None, abs=False):
        """A reduction at a step: the saved one, or that of the saved value."""
        saved = self._find(step_num, mode, worker)
        location = saved.reductions.get((reduction_name, abs))
        if location is not None:
            return self.trial.fetch(location)
        if saved.location is None:
            raise TensorUnavailableForStep(reduction_name, step_num, mode)
        return get_numpy_reduction(reduction_name, self.value(step_num, mode, worker), abs)

    def reduction_values(self, step_num, mode=ModeKeys.GLOBAL, worker=None) -> dict:
        """The saved reductions at a step, by name and whether they are of absolute values."""
        saved = self._find(step_num, mode, worker)
        return {key: self.trial.fetch(location) for key, location in saved.reductions.items()}
