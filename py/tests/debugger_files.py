"""Checks of `smdebug`'s files: written and read by itself, AWS's read by it."""

import importlib.util
import json
import logging
import os
import sys
import tempfile
import threading
import types
from pathlib import Path

import numpy as np
from smdebug import modes
from smdebug.core import events, protobuf, tfrecord
from smdebug.core.logger import get_logger
from smdebug.core.save_config import SaveConfigMode
from smdebug.core.writer import FileWriter
from smdebug.exceptions import (
    NoMoreData,
    RuleEvaluationConditionMet,
    SMDebugError,
    SMDebugRuntimeError,
    SMDebugTypeError,
    SMDebugValueError,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from smdebug.rules import Rule, invoke_rule
from smdebug.trials import create_trial

#: Files that AWS's smdebug 1.0.34 has written, and what its own reader found in them (make.py there).
AWS = Path(__file__).parents[2] / "crates/contract/tests/tensors"
ERRORS = (SMDebugRuntimeError, SMDebugValueError, SMDebugTypeError)


class Lines(logging.Handler):
    """The log's lines while this is entered."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())

    def __enter__(self):
        get_logger().addHandler(self)
        return self.lines

    def __exit__(self, *_):
        get_logger().removeHandler(self)


def raises(errors, call, text="") -> BaseException:
    """The error that the call raises, whose text has this."""
    try:
        call()
    except errors as error:
        assert text in str(error), error
        return error
    raise AssertionError(f"no {errors} was raised")


def run(directory, steps, workers=("worker_0",), ended=True, tensors=lambda step: {"loss": np.float32(step)}) -> None:
    """The files of a run that saved these tensors at these steps, in mode TRAIN."""
    from smdebug.core.collection_manager import CollectionManager

    manager = CollectionManager({"losses": ["loss"], "default": []})
    manager.set_num_workers(len(workers))
    for worker in workers:
        manager.export(directory, worker)
        for step in steps:
            with FileWriter(directory, worker, step) as writer:
                for name, value in tensors(step).items():
                    writer.write_tensor(value, name, mode=modes.TRAIN, mode_step=step // 2)
    if ended:
        Path(directory, "training_job_end.ts").touch()


def files_of_aws_are_read():
    trial = create_trial(str(AWS / "aws"))
    expected = json.loads((AWS / "aws.json").read_text())
    assert len(expected) > 20
    for name, mode, step, shape, values in expected:
        value = trial.tensor(name).value(step, mode=modes[mode])
        assert list(value.shape) == shape, name
        np.testing.assert_allclose(value.ravel(), np.array(values, value.dtype), rtol=1e-6)
    assert trial.workers() == ["worker_0"] and trial.loaded_all_steps
    assert trial.tensor_names(collection="losses") == ["CrossEntropyLoss_output_0"]
    bias = trial.tensor_names(collection="biases")[0]
    step = trial.steps(mode=modes.TRAIN)[0]
    saved = trial.tensor(bias).reduction_values(step, mode=modes.TRAIN)
    assert set(saved) == {("min", False), ("mean", False), ("max", True), ("l2", False)}, saved
    raises(
        TensorUnavailableForStep, lambda: trial.tensor(bias).value(step, mode=modes.TRAIN), "query for the reductions"
    )
    values = np.array([[0, 1, 2], [3, 4, 100]])
    for kind in ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "c8", "c16", "?"]:
        found = trial.tensor(f"type/{kind}").value(9)
        assert found.dtype == np.dtype(kind)
        np.testing.assert_array_equal(found, values.astype(kind))
    assert trial.tensor("type/text").value(9).tolist() == ["a", "é"]
    assert trial.tensor("type/scalar").value(9).item() == 2.5


def bytes_are_those_of_aws():
    # A file of AWS's is written again from what is read of it.
    for path in sorted((AWS / "aws/events").rglob("*.tfevents")):
        data = path.read_bytes()
        written = b""
        for payload in tfrecord.records(data):
            times = [value for field, _, value in protobuf.fields(payload) if field == 1]
            for name, step, value, mode, mode_step in events.read_event(payload):
                wall_time = float(np.frombuffer(times[0], "<f8")[0])
                written += tfrecord.record(events.tensor_event(name, value, step, mode, mode_step, wall_time))
        if "type/text" not in data.decode(errors="replace"):
            assert written == data, path
        else:
            assert len(written) > 1000


def torn_files_are_errors():
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    payload = events.tensor_event("a", value, 3, modes.TRAIN, 1, 1.0)
    data = tfrecord.record(payload, checksum=True)
    assert events.read_event(next(tfrecord.records(data)))[0].step == 3
    for length in range(1, len(data)):
        raises(ERRORS, lambda length=length: list(tfrecord.records(data[:length])))
    generator = np.random.default_rng(16)
    for _ in range(3000):
        torn = bytearray(payload)
        for at in generator.integers(0, len(torn), 3):
            torn[at] = generator.integers(256)
        try:
            events.read_event(bytes(torn))
        except ERRORS:
            continue
    damaged = bytearray(data)
    damaged[20] ^= 1
    raises(ERRORS, lambda: list(tfrecord.records(bytes(damaged))), "wrong checksum")


def steps_are_those_of_the_configuration():
    generator = np.random.default_rng(7)

    def some(*choices):
        return choices[generator.integers(len(choices))]

    for _ in range(500):
        config = SaveConfigMode(
            int(generator.integers(1, 9)), some(None, 0, 3, 12), some(None, 5, 14), some(None, [2, 30])
        )
        behind = int(generator.integers(-1, 20))
        due = [step for step in range(behind + 1, 60) if config.should_save_step(step)]
        assert config.next_step(behind) == (due[0] if due else None), (config, behind)


def trials_answer():
    with tempfile.TemporaryDirectory() as folder:
        run(folder, range(0, 10, 2), tensors=lambda step: {"loss": np.float32(step), "w": np.full((2, 2), step)})
        trial = create_trial(folder)
        assert trial.steps() == [0, 2, 4, 6, 8] and trial.steps(mode=modes.TRAIN) == [0, 1, 2, 3, 4]
        assert trial.mode(4) == modes.TRAIN and trial.mode_step(4) == 2 and trial.global_step(modes.TRAIN, 3) == 6
        assert trial.tensor_names() == ["loss", "w"] and trial.tensor_names(regex="^w") == ["w"]
        assert trial.tensor_names(step=4, collection="losses") == ["loss"]
        assert list(trial.tensor("loss").values().values()) == [0, 2, 4, 6, 8]
        assert trial.tensor("w").value(3, mode=modes.TRAIN).tolist() == [[6, 6], [6, 6]]
        assert trial.tensor("w").reduction_value(4, "l2") == 8 and trial.tensor("w").shape(2) == (2, 2)
        assert trial.tensor("loss").prev_steps(5, 2) == [2, 4]
        trial.wait_for_steps([0, 8])
        raises(StepUnavailable, lambda: trial.wait_for_steps([3]), "was not saved")
        raises(NoMoreData, lambda: trial.wait_for_steps([9]), "Max step available is 8")
        raises(TensorUnavailable, lambda: trial.tensor("none"), "none was not saved")
        assert create_trial(folder, range_steps=(2, 6)).steps() == [2, 4]
        raises(NotImplementedError, lambda: create_trial(folder, profiler=True), "--utilisation")


def places_that_cannot_be_read_are_explained():
    """Without boto3, and with a job's keys, there is a sentence of what works."""

    class ClientError(Exception):
        def __init__(self):
            self.response = {"Error": {"Code": "AccessDenied"}}

    def refuse(**_):
        raise ClientError

    client = types.SimpleNamespace(
        list_objects_v2=refuse, exceptions=types.SimpleNamespace(ClientError=ClientError, NoSuchKey=ClientError)
    )
    before = sys.modules.get("boto3")
    try:
        for boto3, job, kind, part in (
            (None, None, SMDebugError, "pip install boto3"),
            (types.SimpleNamespace(client=lambda _: client), "j", SMDebugError, "a training job's keys do not open"),
            (types.SimpleNamespace(client=lambda _: client), None, ClientError, ""),
        ):
            sys.modules["boto3"] = boto3
            if job:
                os.environ["TRAINING_JOB_NAME"] = job
            try:
                create_trial("s3://bucket/job/debug-output")
                raise AssertionError(part)
            except kind as error:
                assert part in str(error), error
                assert not part or "--channel tensors=s3://" in str(error), error
            finally:
                os.environ.pop("TRAINING_JOB_NAME", None)
    finally:
        sys.modules.pop("boto3")
        if before is not None:
            sys.modules["boto3"] = before


def trials_follow_a_training():
    with tempfile.TemporaryDirectory() as folder:
        run(folder, [0], workers=("worker_0", "worker_1"), ended=False)
        trial = create_trial(folder)
        assert trial.steps() == [0] and not trial.loaded_all_steps
        with FileWriter(folder, "worker_1", 2) as writer:
            writer.write_tensor(np.float32(2), "loss", mode=modes.TRAIN, mode_step=1)
        # One of two workers has saved it.
        assert trial.steps() == [0] and trial.steps(show_incomplete_steps=True) == [0, 2]

        def later():
            with FileWriter(folder, "worker_0", 2) as writer:
                writer.write_tensor(np.float32(3), "loss", mode=modes.TRAIN, mode_step=1)

        timer = threading.Timer(0.3, later)
        timer.start()
        trial.wait_for_steps([2])
        timer.join()
        loss = trial.tensor("loss")
        assert loss.workers(2) == ["worker_0", "worker_1"]
        assert (loss.value(2, worker="worker_1"), loss.value(2)) == (2, 3)
        Path(folder, "training_job_end.ts").touch()
        assert trial.steps() == [0, 2] and trial.loaded_all_steps


class Grows(Rule):
    """Met where the loss is greater than a bound."""

    def __init__(self, base_trial, bound):
        super().__init__(base_trial, action_str='{"name": "stoptraining", "training_job_prefix": "a"}')
        self.bound = bound

    def set_required_tensors(self, step):
        self.req_tensors.add("loss", steps=[step])

    def invoke_at_step(self, step):
        return any(one.value(step) > self.bound for one in self.req_tensors.get())


def rules_are_invoked():
    with tempfile.TemporaryDirectory() as folder:
        run(folder, range(0, 10, 2))
        met = raises(
            RuleEvaluationConditionMet, lambda: invoke_rule(Grows(create_trial(folder), 3.5), raise_eval_cond=True)
        )
        assert str(met) == "Evaluation of the rule Grows at step 4 resulted in the condition being met"
        raises(NoMoreData, lambda: invoke_rule(Grows(create_trial(folder), 99)))
        raises(ValueError, lambda: Rule.__init__(Grows(create_trial(folder), 1), create_trial(folder), "x"), "no JSON")


#: A file with a user's own rule for each end.
OWN = """
from smdebug.rules import Rule

class Grows(Rule):
    def __init__(self, base_trial, action_str, threshold="3.5", other_trials=None):
        super().__init__(base_trial, action_str, other_trials)
        self.threshold = float(threshold)
        self.others = len(other_trials or ())

    def set_required_tensors(self, step):
        self.req_tensors.add("loss", steps=[step])

    def invoke_at_step(self, step):
        (loss,) = self.req_tensors.get()
        assert self.others in (0, 2)
        return loss.value(step) > self.threshold

class Fails(Grows):
    def invoke_at_step(self, step):
        return {}[step]

class Needs(Grows):
    def set_required_tensors(self, step):
        self.req_tensors.add("gradient/w", steps=[step])

class NoRule:
    pass
"""


def own_rules_have_verdicts():
    path = Path(__file__).parents[2] / "crates/agent/python/rule/own_rule.py"
    spec = importlib.util.spec_from_file_location("own_rule", path)
    own_rule = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own_rule)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source/deep")
        source.mkdir(parents=True)
        (source / "mine.py").write_text(OWN)
        run(f"{folder}/run", range(0, 10, 2))
        # A view, as the agent makes it.
        view = Path(folder, "view")
        view.mkdir()
        for part in ("collections", "events", "index"):
            (view / part).symlink_to(Path(folder, "run", part))
        (view / "training_job_end.ts").touch()

        def verdict(rule, others=(), **parameters):
            given = {"rule": rule, "source": str(source.parent), "trial": str(view), "other_trials": list(others)}
            return own_rule.verdict(given | {"parameters": parameters}, steps.append)

        steps = []
        met = "RuleEvaluationConditionMet: Evaluation of the rule Grows at step 4 resulted in the condition being met"
        further = {"source_s3_uri": "s3://b/k", "action_json": "[]", "base_trial": "s3://b/k", "other_trial_0": "x"}
        assert verdict("Grows", [str(view)] * 2, **further) == ("IssuesFound", met)
        assert steps[0] == 0 and steps[-1] == 4 and len(steps) <= 5, steps
        assert verdict("Grows", threshold="99", start_step="2", end_step="9") == ("NoIssuesFound", "")
        assert verdict("Grows", threshold="99", end_step="4") == ("NoIssuesFound", "")
        status, details = verdict("Fails")
        assert (status, details) == ("Error", "KeyError: 0 (line 20 of deep/mine.py)"), details
        for rule, parameters, hint in [
            (
                "Needs",
                {},
                "no step of the training had the tensors that the rule needs: Tensor gradient/w was not saved",
            ),
            ("Absent", {}, "no class Absent, which rule_to_invoke names; its classes are Grows, Fails, Needs, NoRule"),
            ("NoRule", {}, "NoRule has no method invoke"),
            ("Grows", {"treshold": "1"}, "unexpected keyword argument 'treshold'"),
            ("Grows", {"threshold": "much"}, "could not convert string to float: 'much' (line 7 of deep/mine.py)"),
        ]:
            status, details = verdict(rule, **parameters)
            assert status == "Error" and hint in details, (rule, details)
        (source / "mine.py").write_text("class Grows(:")
        status, details = verdict("Grows")
        assert status == "Error" and details.endswith("(line 1 of deep/mine.py)"), details


def tensorboard_files_are_complete():
    with tempfile.TemporaryDirectory() as folder:
        with FileWriter(folder, "w", 5, "tensorboard", modes.TRAIN) as writer:
            writer.write_scalar_summary("loss", 1.5, 5)
            writer.write_histogram_summary(np.arange(100.0), "weights/w", 5)
            with Lines() as lines:
                writer.write_histogram_summary(np.array([np.nan]), "weights/none", 5)
            assert lines == ["Unable to write histogram weights/none at 5: weights/none has no finite value"]
            assert not list(Path(folder).rglob("*.tfevents"))
        (path,) = Path(folder).rglob("*.tfevents")
        assert os.path.relpath(path, folder) == "TRAIN/000000000005_w.tfevents"
        records = list(tfrecord.records(path.read_bytes()))
        assert len(records) == 3 and b"brain.Event:2" in records[0]
        # Checksums are those of the content: TensorBoard compares them.
        assert tfrecord.UNCHECKED not in (int.from_bytes(path.read_bytes()[-4:], "little"),)
