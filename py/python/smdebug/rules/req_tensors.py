"""The tensors that a rule needs at a step."""

from smdebug.exceptions import TensorUnavailable


class RequiredTensorsForTrial:
    """Those of one trial."""

    def __init__(self, trial):
        self.trial = trial
        self._steps = {}

    def add(self, name, steps, should_match_regex=False) -> None:
        """The tensor, or each that the pattern fits, is needed at these steps."""
        names = self.trial.tensor_names(regex=[name]) if should_match_regex else [name]
        for one in names:
            if not self.trial.has_tensor(one):
                raise TensorUnavailable(one)
            self._steps.setdefault(one, []).extend(steps)

    def get_tensor_steps(self, name) -> list:
        """The steps at which a tensor is needed."""
        return self._steps[name]

    def get_names(self):
        """Names of the tensors."""
        return self._steps.keys()

    def get(self) -> list:
        """The tensors."""
        return [self.trial.tensor(name) for name in self._steps]

    def clear(self) -> None:
        """Nothing is needed any more."""
        self._steps.clear()

    def fetch(self) -> None:
        """Waits until all are there; raises where one will not be."""
        self.trial.wait_for_steps(sorted({step for steps in self._steps.values() for step in steps}))
        for name, steps in self._steps.items():
            for step in steps:
                self.trial.tensor(name).value(step)


class RequiredTensors:
    """Those of a rule's trials."""

    def __init__(self, base_trial, other_trials):
        self.base_trial = base_trial
        self._per_trial = {trial: RequiredTensorsForTrial(trial) for trial in [base_trial, *(other_trials or ())]}

    def _of(self, trial) -> RequiredTensorsForTrial:
        return self._per_trial[self.base_trial if trial is None else trial]

    def add(self, name, steps, trial=None, should_match_regex=False) -> None:
        """The tensor, or each that the pattern fits, is needed at these steps."""
        self._of(trial).add(name, steps, should_match_regex)

    def get_tensor_steps(self, name, trial=None) -> list:
        """The steps at which a tensor is needed."""
        return self._of(trial).get_tensor_steps(name)

    def get_names(self, trial=None):
        """Names of the tensors."""
        return self._of(trial).get_names()

    def get(self, trial=None) -> list:
        """The tensors."""
        return self._of(trial).get()

    def clear(self) -> None:
        """Nothing is needed any more."""
        for one in self._per_trial.values():
            one.clear()

    def fetch(self) -> None:
        """Waits until all are there; raises where one will not be."""
        for one in self._per_trial.values():
            one.fetch()
