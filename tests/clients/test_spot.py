"""Managed spot training: instances are taken away, and a script that keeps checkpoints ends as
if nothing had happened.
"""

import itertools
import signal

import pytest
import tuning_jobs
from house import BUCKET, eventually, free_port
from jobs import GROUP, Jobs

# Stochastic gradient descent by hand. Its state, the random numbers' included, is in its
# checkpoint: it saves one at every tenth step and when it is told to end. At the steps that GATES
# names it waits to be told, once each; so the tests interrupt it where they want, however slow the
# machine is.
SGD = """
import json, os, pathlib, random, signal, sys, time

directory = pathlib.Path("/opt/ml/checkpoints")
gates = [int(gate) for gate in os.environ.get("GATES", "").split()]
hyperparameters = json.load(open("/opt/ml/input/config/hyperparameters.json"))
rate = float(hyperparameters.get("rate", 0.01))
state = {"step": 0, "weights": [0.0, 0.0], "random": random.Random(7).getstate(), "passed": []}

def save():
    directory.mkdir(exist_ok=True)
    (directory / "state.new").write_text(json.dumps(state))
    os.replace(directory / "state.new", directory / "state.json")

def end(signum, frame):
    time.sleep(float(os.environ.get("LINGER", "0")))
    save()
    print("saved step", state["step"], flush=True)
    sys.exit(143)

if (directory / "state.json").exists():
    state = json.loads((directory / "state.json").read_text())
    print("resumed at step", state["step"], flush=True)
signal.signal(signal.SIGTERM, end)
numbers = random.Random()
version, internal, gauss = state["random"]
numbers.setstate((version, tuple(internal), gauss))
while state["step"] < 400:
    x = numbers.uniform(-1, 1)
    error = state["weights"][0] * x + state["weights"][1] - (3 * x + 0.5 + numbers.gauss(0, 0.1))
    weights = [state["weights"][0] - rate * error * x, state["weights"][1] - rate * error]
    # Whole, for whoever is told to end in between.
    state = {**state, "step": state["step"] + 1, "weights": weights, "random": numbers.getstate()}
    if state["step"] % 10 == 0:
        save()
    if state["step"] in gates and state["step"] not in state["passed"]:
        state = {**state, "passed": [*state["passed"], state["step"]]}
        print("at step", state["step"], flush=True)
        while True:
            signal.pause()
loss = (state["weights"][0] - 3) ** 2 + (state["weights"][1] - 0.5) ** 2
print(f"loss={loss:.12f};", flush=True)
pathlib.Path("/opt/ml/model/weights.json").write_text(json.dumps(state["weights"]))
"""
INTERRUPTION = ["Starting", "Downloading", "Training", "Interrupted"]
END = ["Starting", "Downloading", "Training", "Uploading", "Completed"]


def spot(prefix, max_run=600, max_wait=1200):
    return {
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {"MaxRuntimeInSeconds": max_run, "MaxWaitTimeInSeconds": max_wait},
        "CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/{prefix}"},
    }


def sgd(jobs, name, gates, **environment):
    return jobs.python(
        SGD,
        name=name,
        metrics=[("loss", r"loss=(\S+);")],
        Environment={"GATES": gates, **environment},
        **spot(f"spot/{name}-{gates.replace(' ', '-')}"),
    )


def statuses(description):
    """Where it was, but for the queue, in which others may keep it."""
    places = [
        transition["Status"]
        for transition in description["SecondaryStatusTransitions"]
        if transition["Status"] != "Pending"
    ]
    return [status for status, _ in itertools.groupby(places)]


def chaos(jobs, *arguments, refused=False):
    run = jobs.house.shoal("chaos", "interrupt", *arguments, check=False)
    assert (run.returncode != 0) == refused, run.stderr
    return run


def streams(jobs, name):
    return jobs.logs_client.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")["logStreams"]


def weights(jobs, name):
    return jobs.artifact(name)["weights.json"]


@pytest.mark.targets
def test_interrupted_three_times_it_ends_as_the_undisturbed_one(jobs):
    whole = sgd(jobs, "whole", "")
    name = sgd(jobs, "interrupted", "100 201 302")
    for gate, when in ((100, []), (201, ["--after", "0s"]), (302, ["--every", "0s", "--times", "1"])):
        jobs.saying(name, f"at step {gate}")
        assert f"{name} is interrupted" in chaos(jobs, name, *when).stdout
    it = jobs.completed(name)
    assert statuses(it) == INTERRUPTION * 3 + END
    assert all(transition["StatusMessage"] for transition in it["SecondaryStatusTransitions"])
    assert len(streams(jobs, name)) == 4
    assert "resumed at step 302" in jobs.lines(name), "the checkpoint that it saved when it was told to end"
    jobs.completed(whole)
    assert weights(jobs, name) == weights(jobs, whole)
    assert jobs.metrics(name) == jobs.metrics(whole)
    assert "is over (Completed); interrupted 0 times" in chaos(jobs, name, "--every", "1h").stdout
    # What it waited for instances is no training.
    assert 1 <= it["BillableTimeInSeconds"] <= it["TrainingTimeInSeconds"]
    savings = (1 - it["BillableTimeInSeconds"] / it["TrainingTimeInSeconds"]) * 100
    assert f"{savings:.1f} % saved" in jobs.house.shoal("jobs", "show", name).stdout
    keys = {entry["Key"] for entry in jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix="spot/interrupted")["Contents"]}
    receipts = jobs.house.shoal("jobs", "checkpoints", name).stdout
    assert any(key.endswith("state.json") for key in keys) and "state.json" in receipts


def test_a_server_that_is_killed_meanwhile_forgets_nothing_and_repeats_nothing(make_house):
    house = make_house("--grace-s", "60", port=free_port())
    jobs = Jobs(house)
    name = sgd(jobs, "killed", "100", LINGER="1")
    jobs.saying(name, "at step 100")
    chaos(jobs, name)
    house.stop(signal.SIGKILL)
    house.start()
    it = jobs.completed(name)
    assert statuses(it) == INTERRUPTION + END
    assert len(streams(jobs, name)) == 2
    assert "resumed at step 100" in jobs.lines(name)


def test_what_cannot_be_interrupted_says_why(jobs):
    name = jobs.command("echo up; sleep 1000")
    jobs.saying(name, "up")
    for when in ([], ["--after", "0s"]):
        refused = chaos(jobs, name, *when, refused=True).stderr
        assert "no managed spot training" in refused and "EnableManagedSpotTraining" in refused
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    jobs.wait(name)
    for named, why in ((name, "in status Stopped"), ("nobody", "there is no training job nobody")):
        assert why in chaos(jobs, named, refused=True).stderr


def test_a_program_that_does_not_end_is_killed_after_the_grace(make_house):
    jobs = Jobs(make_house("--grace-s", "1"))
    deaf = "if [ -e /opt/ml/checkpoints/deaf ]; then exit 0; fi; trap 'echo deaf' TERM; touch /opt/ml/checkpoints/deaf; echo up; while true; do sleep 0.1; done"
    name = jobs.command(deaf, **spot("spot/deaf"))
    jobs.saying(name, "up")
    chaos(jobs, name)
    assert statuses(jobs.completed(name)) == INTERRUPTION + END


def test_waiting_and_training_together_have_a_limit(jobs):
    name = jobs.command("sleep 1000", **spot("spot/limit", max_run=1, max_wait=1))
    it = jobs.wait(name)
    assert (it["TrainingJobStatus"], it["SecondaryStatus"]) == ("Stopped", "MaxWaitTimeExceeded")
    assert (
        it["SecondaryStatusTransitions"][-1]["StatusMessage"]
        == "Training job wait time exceeded MaxWaitTimeInSeconds provided"
    )


def test_trials_are_interrupted_and_go_on(jobs):
    tuning = tuning_jobs.Tuning(jobs)
    jobs.put("spot/code/train.py", SGD)
    definition = {
        **tuning.definition(),
        **spot("spot/trials"),
        "InputDataConfig": [jobs.channel("code", "spot/code")],
        "Environment": {"GATES": "100"},
    }
    ranges = {"ContinuousParameterRanges": [{"Name": "rate", "MinValue": "0.01", "MaxValue": "0.1"}]}
    request = tuning.request(definition, ranges=ranges, jobs=2, parallel=1)
    name = request["HyperParameterTuningJobName"]
    jobs.sagemaker.create_hyper_parameter_tuning_job(**request)

    def trials():
        listed = jobs.sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(
            HyperParameterTuningJobName=name, SortOrder="Ascending"
        )
        return [trial["TrainingJobName"] for trial in listed["TrainingJobSummaries"]]

    for number in (1, 2):
        trial = eventually(lambda number=number: len(trials()) == number and trials()[-1])
        jobs.saying(trial, "at step 100")
        chaos(jobs, trial)
        it = jobs.completed(trial)
        assert it["EnableManagedSpotTraining"] and statuses(it) == INTERRUPTION + END
        assert "resumed at step 100" in jobs.lines(trial)
    done = tuning.wait(name)
    assert done["HyperParameterTuningJobStatus"] == "Completed"
    assert done["BestTrainingJob"]["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] < 1
