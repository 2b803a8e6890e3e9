"""What is raised, under AWS's names."""

from smdebug.core.modes import ModeKeys


class SMDebugError(Exception):
    """Base of all."""


class SMDebugCustomerError(SMDebugError):
    """A mistake of the script."""


class SMDebugTypeError(SMDebugError, TypeError):
    """A value of a wrong type."""


class SMDebugRuntimeError(SMDebugError, RuntimeError):
    """Something that cannot be done now."""


class SMDebugNotImplementedError(SMDebugError, NotImplementedError):
    """Something that is not offered."""


class SMDebugValueError(SMDebugError, ValueError):
    """A value that is not accepted."""


class InvalidCollectionConfiguration(SMDebugError):
    """A collection without names and without a pattern."""

    def __init__(self, c_name):
        super().__init__(c_name)
        self.c_name = c_name

    def __str__(self):
        return f"Collection {self.c_name} has not been configured. Please fill in tensor_name or include_regex"


class StepNotYetAvailable(SMDebugError):
    """A step that may still come."""

    def __init__(self, step, mode):
        super().__init__(step, mode)
        self.step, self.mode = step, mode

    def __str__(self):
        return f"Step {self.step} of mode {self.mode.name} not yet available"


class StepUnavailable(SMDebugError):
    """A step that was not saved and will not be."""

    def __init__(self, step, mode):
        super().__init__(step, mode)
        self.step, self.mode = step, mode

    def __str__(self):
        return f"Step {self.step} of mode {self.mode.name} is not available as it was not saved"


class MissingCollectionFiles(SMDebugError):
    """The training has ended, and the files of some workers are missing."""

    def __str__(self):
        return "Training job has ended. All the collection files could not be loaded"


class IndexReaderException(SMDebugError):
    """A file of the index that cannot be read."""


class TensorUnavailable(SMDebugError):
    """A tensor that was never saved."""

    def __init__(self, tname):
        super().__init__(tname)
        self.tname = tname

    def __str__(self):
        return f"Tensor {self.tname} was not saved."


class TensorUnavailableForStep(SMDebugError):
    """A tensor that was not saved at this step."""

    def __init__(self, tname, step, mode=ModeKeys.GLOBAL, has_reductions=False):
        super().__init__(tname, step, mode)
        self.tname, self.step, self.mode, self.has_reductions = tname, step, mode, has_reductions

    def __str__(self):
        text = (
            f"Value for tensor {self.tname} is not available for step {self.step} "
            f"with mode {self.mode.name} as it was not saved."
        )
        if self.has_reductions:
            text += "This tensor has reductions saved for this step. You might want to query for the reductions."
        return text


class ShapeUnavailableForStep(SMDebugError):
    """A shape that was not saved at this step."""

    def __init__(self, tname, step, mode=ModeKeys.GLOBAL):
        super().__init__(tname, step, mode)
        self.tname, self.step, self.mode = tname, step, mode

    def __str__(self):
        return (
            f"Shape for tensor {self.tname} is not available for step {self.step} "
            f"with mode {self.mode.name} as it was not saved."
        )


class InvalidWorker(SMDebugError):
    """A worker that saved nothing at this step."""

    def __init__(self, worker):
        super().__init__(worker)
        self.worker = worker

    def __str__(self):
        return f"Invalid Worker: {self.worker}"


class NoMoreProfilerData(SMDebugError):
    """The training has ended before this time."""

    def __init__(self, timestamp):
        super().__init__(timestamp)
        self.timestamp = timestamp

    def __str__(self):
        return f"Looking for timestamp {self.timestamp} and reached end of training."


class NoMoreData(SMDebugError):
    """The training has ended before this step."""

    def __init__(self, step, mode, last_step):
        super().__init__(step, mode, last_step)
        self.step, self.mode, self.last_step = step, mode, last_step

    def __str__(self):
        return (
            f"Looking for step {self.step} of mode {self.mode.name} and reached end of training. "
            f"Max step available is {self.last_step}"
        )


class RuleEvaluationConditionMet(SMDebugError):
    """What a rule looks for is there."""

    def __init__(self, rule_name, step, end_of_rule=False):
        super().__init__(rule_name, step, end_of_rule)
        self.rule_name, self.step, self.end_of_rule = rule_name, step, end_of_rule

    def __str__(self):
        return f"Evaluation of the rule {self.rule_name} at step {self.step} resulted in the condition being met"


class InsufficientInformationForRuleInvocation(SMDebugError):
    """A rule has not what it needs."""

    def __init__(self, rule_name, message):
        super().__init__(rule_name, message)
        self.rule_name, self.message = rule_name, message

    def __str__(self):
        return f"Insufficient information to invoke rule {self.rule_name}: {self.message}"
