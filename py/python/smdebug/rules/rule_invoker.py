"""Invokes a rule step by step."""

from smdebug.core.logger import get_logger
from smdebug.exceptions import (
    NoMoreData,
    NoMoreProfilerData,
    RuleEvaluationConditionMet,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)

logger = get_logger()


def invoke_rule(rule_obj, start_step=0, end_step=None, raise_eval_cond=False) -> None:
    """Invokes the rule at each step from `start_step` on and before `end_step`, while they come.

    With `raise_eval_cond` it ends with RuleEvaluationConditionMet at the first step where the rule
    is met. NoMoreData is raised when the training has ended, as in AWS's library.
    """
    name = type(rule_obj).__name__
    step = start_step or 0
    logger.info(f"Started execution of rule {name} at step {step}")
    while end_step is None or step < end_step:
        try:
            rule_obj.invoke(step)
        except (TensorUnavailableForStep, StepUnavailable, TensorUnavailable) as error:
            logger.debug(str(error))
        except RuleEvaluationConditionMet as met:
            if raise_eval_cond:
                raise
            logger.info(str(met))
            if met.end_of_rule:
                break
        except NoMoreProfilerData as error:
            logger.info(f"No more profiler data for rule {name} at timestamp {error.timestamp}")
            break
        except NoMoreData:
            logger.info(f"Ended execution of rule {name} at end_step {step - 1}")
            raise
        step += 1
    logger.info(f"Ended execution of rule {name} at end_step {step - 1}")
