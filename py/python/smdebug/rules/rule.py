"""The base of rules."""

from abc import ABC, abstractmethod

from smdebug.analysis import no_refresh
from smdebug.core.logger import get_logger
from smdebug.exceptions import RuleEvaluationConditionMet
from smdebug.rules.action import Actions
from smdebug.rules.req_tensors import RequiredTensors


class Rule(ABC):
    """A rule finds out at each step whether what it looks for is there."""

    def __init__(self, base_trial, action_str="", other_trials=None):
        self.base_trial, self.other_trials = base_trial, other_trials
        self.trials = [base_trial, *(other_trials or ())]
        self.req_tensors = RequiredTensors(base_trial, other_trials)
        self.logger = get_logger()
        self.rule_name = type(self).__name__
        self._actions = Actions(action_str, rule_name=self.rule_name)
        self.report = {"RuleTriggered": 0, "Violations": 0, "Details": {}, "Datapoints": 0, "RuleParameters": ""}

    def set_required_tensors(self, step) -> None:
        """Adds to `req_tensors` what is needed at this step."""

    @abstractmethod
    def invoke_at_step(self, step) -> bool:
        """Whether what the rule looks for is there at this step, of all steps' numbers."""

    def invoke(self, step) -> None:
        """Waits for the step and looks at it; raises RuleEvaluationConditionMet if it is there."""
        self.base_trial.wait_for_steps([step])
        # What was waited for is what the rule sees.
        with no_refresh(self.trials):
            self.req_tensors.clear()
            self.set_required_tensors(step)
            self.req_tensors.fetch()
            is_met = self.invoke_at_step(step)
        if is_met:
            self._actions.invoke()
            raise RuleEvaluationConditionMet(self.rule_name, step)
