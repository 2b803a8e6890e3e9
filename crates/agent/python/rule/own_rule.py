"""Evaluates a user's own rule (a class on `smdebug.rules.Rule`) beside its training. The agent starts
it in the job's Python environment, with a file that describes the evaluation.

Its standard output has JSON lines for the agent alone: the step that it is at, at last the verdict.
What the rule prints goes to standard error.
"""

import ast
import importlib.util
import inspect
import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path

#: Parameters that are the platform's: a rule's constructor does not get them, or not as they are.
_OF_PLATFORM = {"rule_to_invoke", "source_s3_uri", "action_json", "base_trial", "other_trials"}
#: Seconds between two reports of the step.
_REPORT_S = 1


class NoRuleError(Exception):
    """The source has no class of that name, or one that is no rule."""


class NothingEvaluatedError(Exception):
    """No step had what the rule needs."""


def find(directory: Path, name: str) -> Path:
    """The file whose module has the class."""
    others, broken = [], None
    for file in sorted(directory.rglob("*.py"), key=lambda file: (len(file.parts), file)):
        try:
            body = ast.parse(file.read_bytes(), str(file)).body
        except SyntaxError as error:
            broken = broken or error
            continue
        classes = [node.name for node in body if isinstance(node, ast.ClassDef)]
        if name in classes:
            return file
        others += classes
    if broken is not None:
        raise broken
    there = f"its classes are {', '.join(others)}" if others else "it has no class in a file that ends with .py"
    raise NoRuleError(f"the source has no class {name}, which rule_to_invoke names; {there}")


def load(directory: Path, name: str) -> type:
    """The class of that name."""
    file = find(directory, name)
    sys.path[:0] = [str(file.parent), str(directory)]
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    rule = getattr(module, name)
    if not callable(getattr(rule, "invoke", None)):
        raise NoRuleError(f"{name} has no method invoke: derive it from smdebug.rules.Rule")
    return rule


def make(rule: type, parameters: dict, base_trial, other_trials: list):
    """An object of the class, made with the request's parameters, which are texts."""
    known = inspect.signature(rule).parameters
    steps = {"start_step", "end_step"} - set(known)
    given = {
        name: value
        for name, value in parameters.items()
        if name not in _OF_PLATFORM | steps and not name.startswith("other_trial_")
    }
    if other_trials:
        given["other_trials"] = other_trials
    if "action_str" in known and known["action_str"].default is inspect.Parameter.empty:
        given["action_str"] = ""
    return rule(base_trial, **given)


def evaluate(rule, first: int, end: int | None, report) -> None:
    """Invokes the rule at each step that is saved, until the training has ended; what the rule
    raises when its condition is met goes through.
    """
    from smdebug.exceptions import NoMoreData, StepUnavailable, TensorUnavailable, TensorUnavailableForStep

    evaluated, missing, step = 0, None, first
    while end is None or step < end:
        report(step)
        try:
            rule.invoke(step)
            evaluated += 1
        except StepUnavailable:
            later = [one for one in rule.base_trial.steps(show_incomplete_steps=True) if one > step]
            step = min(later, default=step + 1) - 1
        except (TensorUnavailable, TensorUnavailableForStep) as error:
            missing = error
        except NoMoreData:
            break
        step += 1
    if evaluated == 0:
        raise NothingEvaluatedError(
            "no step of the training had the tensors that the rule needs" + (f": {missing}" if missing else "")
        )


def described(error: BaseException, directory: Path) -> str:
    """The error, and the line of the user's source that it comes from."""
    name = lambda file: os.path.relpath(file, directory)
    if isinstance(error, SyntaxError) and str(error.filename).startswith(str(directory)):
        return f"{type(error).__name__}: {error.msg} (line {error.lineno} of {name(error.filename)})"
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename.startswith(str(directory))]
    where = f" (line {frames[-1].lineno} of {name(frames[-1].filename)})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def verdict(given: dict, report) -> tuple[str, str]:
    """The status and its details, as DescribeTrainingJob has them."""
    directory = Path(given["source"])
    try:
        from smdebug.exceptions import RuleEvaluationConditionMet
        from smdebug.trials import create_trial

        found = load(directory, given["rule"])
        trials = [create_trial(path) for path in (given["trial"], *given["other_trials"])]
        parameters = given["parameters"]
        step = lambda name, default: int(float(parameters.get(name) or default))
        end = step("end_step", 0) if parameters.get("end_step") else None
        rule = make(found, parameters, trials[0], trials[1:])
        try:
            evaluate(rule, step("start_step", 0), end, report)
        except RuleEvaluationConditionMet as met:
            return "IssuesFound", f"RuleEvaluationConditionMet: {met}"
    # A rule may raise whatever it likes, `sys.exit` included.
    except BaseException as error:
        traceback.print_exc()
        return "Error", described(error, directory)
    return "NoIssuesFound", ""


def main(path: str) -> None:
    """Evaluates what the file describes."""
    given = json.loads(Path(path).read_text())
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.nice(19)
    # An error of Python has the line that needed it, an end by the kernel has not.
    resource.setrlimit(resource.RLIMIT_DATA, (given["memory_bytes"],) * 2)
    last = [0.0]

    def report(step: int) -> None:
        now = time.monotonic()
        if now - last[0] >= _REPORT_S:
            last[0] = now
            print(json.dumps({"step": step}), file=out, flush=True)

    status, details = verdict(given, report)
    sys.stderr.flush()
    print(json.dumps({"status": status, "details": details}), file=out, flush=True)
    # Threads of the rule hold nothing up.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
