"""The Debugger: tensors that a hook saves without a change of the script, rules that judge them while
the job runs, a rule that stops it, and what readers find in S3.
"""

import json

import pytest
from jobs import BUCKET, eventually
from test_distributions import PYTORCH
from test_script_mode import create

#: A classifier whose weights become NaN at a step; it would train for minutes.
SCRIPT = """
import sys, time
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_of = torch.nn.CrossEntropyLoss()
x, y = torch.randn(64, 8), torch.randint(0, 2, (64,))
steps, nan_at = int(sys.argv[sys.argv.index("--steps") + 1]), int(sys.argv[sys.argv.index("--nan") + 1])
for step in range(steps):
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    if step == nan_at:
        loss = loss * float("nan")
        print(f"NaN at {time.time()}", flush=True)
    loss.backward()
    optimizer.step()
    time.sleep(0.02)
print("trained to the end", flush=True)
"""

HOOK = {
    "S3OutputPath": f"s3://{BUCKET}/debug",
    "HookParameters": {"save_interval": "5"},
    "CollectionConfigurations": [{"CollectionName": "gradients"}, {"CollectionName": "losses"}],
}


def rule(name, invoked, **parameters):
    return {
        "RuleConfigurationName": name,
        "RuleEvaluatorImage": "503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules:latest",
        "RuleParameters": {"rule_to_invoke": invoked, **parameters},
    }


def train(jobs, steps, nan_at, rules, **changes):
    return create(
        jobs,
        {"train.py": SCRIPT},
        image=PYTORCH,
        hyperparameters={"steps": str(steps), "nan": str(nan_at)},
        DebugHookConfig=HOOK,
        DebugRuleConfigurations=rules,
        **changes,
    )


@pytest.fixture(autouse=True)
def _pytorch(house):
    if not house.has_environment("pytorch"):
        pytest.skip("needs the PyTorch environment: shoal env-cache prepare pytorch")


def statuses(description):
    return {it["RuleConfigurationName"]: it for it in description["DebugRuleEvaluationStatuses"]}


def test_a_rule_that_finds_a_nan_stops_the_training(house, jobs):
    stop = '[{\\"training_job_prefix\\": \\"script-mode\\", \\"name\\": \\"stoptraining\\"}]'
    rules = [
        rule("nan", "ExplodingTensor", collection_names="gradients", only_nan="True", action_json=stop),
        rule("never", "VanishingGradient", threshold="0.0"),
    ]
    name = train(jobs, 6000, 50, rules)
    assert {it["RuleEvaluationStatus"] for it in statuses(jobs.describe(name)).values()} == {"InProgress"}
    description = jobs.wait(name)
    lines = jobs.logs(name)["algo-1"]
    assert description["TrainingJobStatus"] == "Stopped", lines
    assert "trained to the end" not in lines
    found = statuses(description)
    assert found["nan"]["RuleEvaluationStatus"] == "IssuesFound", found
    details = found["nan"]["StatusDetails"]
    assert details.startswith("RuleEvaluationConditionMet: Evaluation of the rule ExplodingTensor at step 50"), details
    assert "gradient/" in details
    assert found["never"]["RuleEvaluationStatus"] == "NoIssuesFound", found
    arn = found["nan"]["RuleEvaluationJobArn"]
    assert ":processing-job/" in arn and arn.split("/")[1].startswith("script-mode"), arn
    planted = next(float(line.split()[-1]) for line in lines if line.startswith("NaN at "))
    stopping = next(it for it in description["SecondaryStatusTransitions"] if it["Status"] == "Stopping")
    assert "the condition of a rule was met" in stopping["StatusMessage"]
    print(f"from the NaN to Stopping: {stopping['StartTime'].timestamp() - planted:.3f} s")
    shown = house.shoal("jobs", "show", name).stdout
    assert "rule     nan IssuesFound: RuleEvaluationConditionMet" in shown


def test_readers_find_a_complete_run(house, jobs, tmp_path):
    board = {"S3OutputPath": f"s3://{BUCKET}/board"}
    rules = [rule("loss", "LossNotDecreasing", num_steps="3", diff_percent="0.01")]
    name = train(jobs, 40, -1, rules, TensorBoardOutputConfig=board)
    description = jobs.completed(name)
    assert statuses(description)["loss"]["RuleEvaluationStatus"] == "NoIssuesFound", description
    prefix = f"debug/{name}/debug-output/"
    keys = lambda: [it["Key"] for it in jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])]
    eventually(lambda: prefix + "training_job_end.ts" in keys())
    found = [key.removeprefix(prefix) for key in keys()]
    assert sum(key.startswith("index/") for key in found) == 8, found
    assert (
        sum(key.startswith("events/") for key in found) == 8
        and "collections/000000000/worker_0_collections.json" in found
    )
    copied = house.shoal("tensorboard", name, "--sync", "--logdir", str(tmp_path)).stdout
    assert "event files of" in copied and any(tmp_path.rglob("*tfevents*")), copied


#: Far more processes load data than there are cores; it would go on for minutes.
LOADING = """
import time
import torch

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 10**6

    def __getitem__(self, at):
        time.sleep(0.05)
        return at

for batch in torch.utils.data.DataLoader(Slow(), batch_size=4, num_workers=9):
    pass
"""


def test_the_profilers_rules_judge_samples_and_stop_the_training(house, jobs):
    stop = '[{\\"training_job_prefix\\": \\"script-mode\\", \\"name\\": \\"stoptraining\\"}]'
    name = create(
        jobs,
        {"train.py": LOADING},
        image=PYTORCH,
        ProfilerConfig={"S3OutputPath": f"s3://{BUCKET}/profile", "ProfilingIntervalInMilliseconds": 200},
        ProfilerRuleConfigurations=[
            rule("usage", "OverallSystemUsage"),
            rule("bottleneck", "CPUBottleneck", patience="5"),
            rule("steps", "StepOutlier"),
        ],
    )
    eventually(lambda: jobs.describe(name)["SecondaryStatus"] == "Training")
    # An update adds one, which counts at once.
    jobs.sagemaker.update_training_job(
        TrainingJobName=name, ProfilerRuleConfigurations=[rule("loaders", "Dataloader", action_json=stop)]
    )
    found = lambda it: {it["RuleConfigurationName"]: it for it in it["ProfilerRuleEvaluationStatuses"]}
    assert {it["RuleEvaluationStatus"] for it in found(jobs.describe(name)).values()} == {"InProgress"}
    description = jobs.wait(name)
    lines = jobs.logs(name)["algo-1"]
    assert description["TrainingJobStatus"] == "Stopped", lines
    rules = {name: (it["RuleEvaluationStatus"], it.get("StatusDetails", "")) for name, it in found(description).items()}
    status, details = rules["loaders"]
    assert status == "IssuesFound" and "9 processes load data on algo-1 with" in details, rules
    assert rules["usage"] == ("NoIssuesFound", ""), rules
    assert any("rule usage: algo-1 CPU: p50" in line for line in lines), lines
    for unjudged, why in [
        ("bottleneck", "no instance of the training job has a GPU."),
        ("steps", "no step times came"),
    ]:
        status, details = rules[unjudged]
        assert status == "Error" and why in details, rules


#: Rules of a user's own: one that is met, one that never is, and one with a mistake.
OWN_RULES = """
import numpy as np
from smdebug.rules import Rule

class Gradients(Rule):
    def __init__(self, base_trial, limit="1e9"):
        super().__init__(base_trial)
        self.limit = float(limit)

    def set_required_tensors(self, step):
        for name in self.base_trial.tensor_names(collection="gradients"):
            self.req_tensors.add(name, steps=[step])

    def invoke_at_step(self, step):
        values = [one.value(step) for one in self.req_tensors.get()]
        return bool(values) and not all(np.abs(value).max() < self.limit for value in values)

class Broken(Gradients):
    def invoke_at_step(self, step):
        print("looks at", step)
        return self.limits > step

class Greedy(Gradients):
    def invoke_at_step(self, step):
        return np.ones(1 << 29).sum() > 0
"""


def test_own_rules_judge_and_stop_the_training(house, jobs):
    stop = '[{\\"training_job_prefix\\": \\"script-mode\\", \\"name\\": \\"stoptraining\\"}]'
    source = jobs.put("rules/own.py", OWN_RULES)
    rules = [
        rule("nan", "Gradients", source_s3_uri=source, action_json=stop),
        rule("never", "Gradients", source_s3_uri=source, start_step="1000000"),
        rule("broken", "Broken", source_s3_uri=source),
        rule("greedy", "Greedy", source_s3_uri=source),
    ]
    name = train(jobs, 6000, 100, rules)
    eventually(lambda: statuses(jobs.describe(name))["broken"]["RuleEvaluationStatus"] == "Error")
    description = jobs.wait(name)
    lines = jobs.logs(name)["algo-1"]
    assert description["TrainingJobStatus"] == "Stopped", lines
    found = statuses(description)
    assert found["nan"]["RuleEvaluationStatus"] == "IssuesFound", (found, lines)
    assert found["nan"]["StatusDetails"] == (
        "RuleEvaluationConditionMet: Evaluation of the rule Gradients at step 100 resulted in the condition being met"
    )
    assert found["never"]["RuleEvaluationStatus"] == "Error", (found, lines)
    assert "no step of the training had the tensors" in found["never"]["StatusDetails"]
    broken = found["broken"]["StatusDetails"]
    assert broken == "AttributeError: 'Broken' object has no attribute 'limits' (line 21 of own.py)", broken
    greedy = found["greedy"]["StatusDetails"]
    assert "Unable to allocate 4.00 GiB" in greedy and "(line 25 of own.py)" in greedy, greedy
    assert any("rule broken: looks at 0" in line for line in lines), lines
    planted = next(float(line.split()[-1]) for line in lines if line.startswith("NaN at "))
    stopping = next(it for it in description["SecondaryStatusTransitions"] if it["Status"] == "Stopping")
    print(f"from the NaN to Stopping: {stopping['StartTime'].timestamp() - planted:.3f} s")


#: A rule that compares with another run, tensor by tensor.
COMPARES = """
import numpy as np
from smdebug.rules import Rule

class Compares(Rule):
    def __init__(self, base_trial, other_trials):
        super().__init__(base_trial, other_trials=other_trials)

    def invoke_at_step(self, step):
        (other,) = self.other_trials
        names = self.base_trial.tensor_names(step=step)
        same = [np.allclose(self.base_trial.tensor(it).value(step), other.tensor(it).value(step)) for it in names]
        return step >= 10 and all(same)
"""


def test_what_was_saved_last_is_evaluated_and_runs_are_compared(house, jobs):
    source = jobs.put("rules/last.py", OWN_RULES)
    last = [
        rule("last", "Gradients", source_s3_uri=source, limit="1e9"),
        rule("none", "Gradients", source_s3_uri=source, end_step="30"),
    ]
    first = train(jobs, 40, 35, last)
    found = statuses(jobs.completed(first))
    assert found["last"]["RuleEvaluationStatus"] == "IssuesFound", found
    assert "at step 35 " in found["last"]["StatusDetails"], found
    assert found["none"]["RuleEvaluationStatus"] == "NoIssuesFound", found

    tensors = f"s3://{BUCKET}/debug/{first}/debug-output"
    source = jobs.put("rules/compares.py", COMPARES)
    again = [
        rule("similar", "SimilarAcrossRuns", other_trial_0=tensors),
        rule("own", "Compares", source_s3_uri=source, other_trial_0=tensors),
    ]
    found = statuses(jobs.completed(train(jobs, 20, -1, again)))
    assert found["similar"]["RuleEvaluationStatus"] == "IssuesFound", found
    assert "tensors that other run 0 saved in this step" in found["similar"]["StatusDetails"], found
    assert found["own"]["RuleEvaluationStatus"] == "IssuesFound", found
    assert "at step 10 " in found["own"]["StatusDetails"], found


def test_rules_of_a_profiler_that_is_switched_off_are_stopped(house, jobs):
    name = create(
        jobs,
        {"train.py": LOADING},
        image=PYTORCH,
        ProfilerConfig={"S3OutputPath": f"s3://{BUCKET}/profile", "ProfilingIntervalInMilliseconds": 200},
        ProfilerRuleConfigurations=[rule("usage", "OverallSystemUsage")],
    )
    eventually(lambda: jobs.describe(name)["SecondaryStatus"] == "Training")
    jobs.sagemaker.update_training_job(TrainingJobName=name, ProfilerConfig={"DisableProfiler": True})
    status = lambda: jobs.describe(name)["ProfilerRuleEvaluationStatuses"][0]
    assert status()["RuleEvaluationStatus"] == "Stopped" and "DisableProfiler" in status()["StatusDetails"]
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    jobs.wait(name)
    assert status()["RuleEvaluationStatus"] == "Stopped", status()


#: Waits for its data, and in each 10th step for something else.
STEPS = """
import sys, time
import torch

torch.set_num_threads(1)
slow, seconds = (float(sys.argv[sys.argv.index(name) + 1]) for name in ("--slow", "--seconds"))

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 10**6

    def __getitem__(self, at):
        time.sleep(0.002)
        return torch.randn(64), at % 2

model = torch.nn.Linear(64, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
end = time.time() + seconds
for step, (x, y) in enumerate(torch.utils.data.DataLoader(Samples(), batch_size=8)):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    time.sleep(slow if step % 10 == 9 else 0)
    optimizer.step()
    if time.time() > end:
        break
"""
REPORT = "ProfilerReport-1700000000"


def test_step_times_are_judged_and_make_a_report(house, jobs, tmp_path):
    patient = {"stddev": "20", "n_outliers": "8"}
    start = lambda slow, seconds: create(
        jobs,
        {"train.py": STEPS},
        image=PYTORCH,
        hyperparameters={"slow": str(slow), "seconds": str(seconds)},
        ProfilerConfig={"S3OutputPath": f"s3://{BUCKET}/profile", "ProfilingIntervalInMilliseconds": 500},
        ProfilerRuleConfigurations=[
            rule("outliers", "StepOutlier", **patient),
            rule("start", "MaxInitializationTime"),
            rule("framework", "OverallFrameworkMetrics"),
            rule(REPORT, "ProfilerReport", **{f"StepOutlier_{name}": value for name, value in patient.items()}),
        ],
    )
    faulty, healthy = start(1, 22), start(0, 6)
    eventually(lambda: jobs.describe(faulty)["SecondaryStatus"] == "Training")
    page = tmp_path / "profile.html"
    shown = house.shoal("jobs", "profile", faulty, "--stacks", "3s", "--html", str(page)).stdout
    assert str(page) in shown and "<h2>Stacks</h2>" in page.read_text(), shown
    for name, status in [(faulty, "IssuesFound"), (healthy, "NoIssuesFound")]:
        description = jobs.completed(name)
        rules = {it["RuleConfigurationName"]: it for it in description["ProfilerRuleEvaluationStatuses"]}
        assert rules["outliers"]["RuleEvaluationStatus"] == status, rules
        assert {rules[it]["RuleEvaluationStatus"] for it in ("start", "framework")} == {"NoIssuesFound"}, rules
        lines = jobs.logs(name)["algo-1"]
        assert any("rule framework: rank 0 of algo-1: " in line for line in lines), lines
        folder = f"out/{name}/rule-output"
        found = lambda key: jobs.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()
        keys = lambda prefix: [
            it["Key"] for it in jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        ]
        report = f"{folder}/{REPORT}/profiler-output"
        eventually(lambda report=report, keys=keys: f"{report}/profiler-reports/StepOutlier.json" in keys(report))
        text = found(f"{report}/profiler-report.html")
        assert "<b>Steps wait for data</b>" in text and "Step times" in text and "http:" not in text
        triggered = int(status == "IssuesFound")
        for key in (f"{folder}/outliers/StepOutlier.json", f"{report}/profiler-reports/StepOutlier.json"):
            read = json.loads(found(key))
            assert read["RuleTriggered"] == triggered and "n_outliers:8" in read["RuleParameters"], read
            assert read["Datapoints"] > 50, read
    shown = house.shoal("jobs", "profile", faulty, "--html", str(page)).stdout
    assert "Some steps take much longer than usual" in shown and "They come every 10 steps." in shown, shown
    assert "step 29 of rank 0 (algo-1)" in page.read_text()


WAITING = """
import time
import torch
import torch.distributed as dist
import shoal.torch

dist.init_process_group("shoal")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(100):
    time.sleep(0.03 * dist.get_rank())
    optimizer.zero_grad()
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
"""


def test_the_rank_that_others_wait_for_is_reported(house, jobs, package, tmp_path):
    name = create(
        jobs,
        {"train.py": WAITING},
        image=PYTORCH,
        instances=2,
        hyperparameters={"sagemaker_pytorch_ddp_enabled": "true"},
        ProfilerConfig={"S3OutputPath": f"s3://{BUCKET}/profile"},
    )
    jobs.completed(name)
    shown = house.shoal("jobs", "profile", name, "--html", str(tmp_path / "profile.html")).stdout
    assert "Rank 1 is slower than the others" in shown, shown
    assert "rank 0 (algo-1) waits longest" in shown, shown


def test_mistakes_in_rules_are_refused_at_creation(jobs):
    for given, hint in [
        (rule("r", "VanishingGradients"), "did you mean VanishingGradient?"),
        (rule("r", "VanishingGradient", threshold="small"), "threshold"),
        (rule("r", "CPUBottleneck"), "ProfilerRuleConfigurations"),
        (rule("r", "Mine", source_s3_uri=f"s3://{BUCKET}/rules/none.py"), "upload the source of the rule first"),
        (rule("r", "not a name", source_s3_uri=f"s3://{BUCKET}/rules/none.py"), "no name of a Python class"),
        (rule("r", "SimilarAcrossRuns"), "other_trial_0"),
        (rule("r", "SimilarAcrossRuns", other_trial_0=f"s3://{BUCKET}/no/run"), "no tensors of a training job below"),
        (rule("r", "SimilarAcrossRuns", other_trial_0="s3://no-such-bucket/run"), "does not exist"),
        (rule("r", "AllZero", base_trial=f"s3://{BUCKET}/debug/other/debug-output"), "leave base_trial out"),
    ]:
        with pytest.raises(jobs.sagemaker.exceptions.ClientError) as error:
            train(jobs, 1, -1, [given])
        code, message = error.value.response["Error"]["Code"], error.value.response["Error"]["Message"]
        assert code == "ValidationException" and hint in message, message
