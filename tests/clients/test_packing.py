"""Jobs hold the memory that they use, whatever their types are called; the last to start is
ended when the machine runs short.
"""

import os
import re

import pytest
from house import eventually
from jobs import Jobs
from test_cli import run

# Fills the memory.
pytestmark = pytest.mark.alone

USES = """
import sys, time
used = b"x" * ({mebibytes} << 20)
print("uses it", flush=True)
time.sleep({seconds})
"""


@pytest.fixture
def jobs(new_house):
    """A machine of 1 GiB, on which one ml.m5.large alone is the whole machine."""
    return Jobs(new_house("--memory", "1GiB", "--instances", "8"))


def transitions(jobs, name):
    return [(it["Status"], it["StatusMessage"]) for it in jobs.describe(name)["SecondaryStatusTransitions"]]


def test_small_jobs_run_side_by_side(jobs):
    first = jobs.script("echo ready; sleep 60")
    jobs.saying(first, "ready")
    second = jobs.script("true")
    jobs.completed(second)
    assert "Pending" not in [status for status, _ in transitions(jobs, second)]
    assert jobs.describe(first)["TrainingJobStatus"] == "InProgress"
    jobs.sagemaker.stop_training_job(TrainingJobName=first)


def test_the_last_to_start_makes_room_and_is_started_again(jobs):
    first = jobs.python(USES.format(mebibytes=450, seconds=600))
    jobs.saying(first, "uses it")
    second = jobs.python(USES.format(mebibytes=600, seconds=3), name="second")
    [message] = eventually(
        lambda: [message for status, message in transitions(jobs, second) if status == "Interrupted"], 60
    )
    assert "memory of the machine ran short" in message and "started after others" in message
    jobs.until(second, "Pending")
    assert jobs.describe(first)["TrainingJobStatus"] == "InProgress"
    jobs.sagemaker.stop_training_job(TrainingJobName=first)
    jobs.completed(second)
    assert any("ended for want of memory" in message for _, message in transitions(jobs, second))


def test_whoever_grows_between_two_looks_does_not_cost_the_oldest_job(limited, jobs):
    """The kernel is faster than the server: it looks among the instances alone, and takes the
    last to start.
    """
    if os.getuid() != 0:
        pytest.skip("needs root: a rootless instance's process 1 is not its owner's to weigh")
    waits = "import os, time\nprint('ready', flush=True)\nwhile not os.path.exists('/dev/shm/go'): time.sleep(0.01)\n"
    inside = lambda name, *command: jobs.house.shoal("jobs", "exec", name, "--", *command, check=False)
    first = jobs.python(waits + USES.format(mebibytes=600, seconds=3), name="older")
    jobs.saying(first, "ready")
    second = jobs.python(waits + USES.format(mebibytes=600, seconds=1), name="newer")
    jobs.saying(second, "ready")
    for name, weight in [(first, "0"), (second, "1000")]:
        eventually(lambda: inside(name, "cat", "/proc/1/oom_score_adj").stdout.strip() == weight)
    inside(first, "touch", "/dev/shm/go")
    inside(second, "touch", "/dev/shm/go")
    [message] = eventually(
        lambda: [message for status, message in transitions(jobs, second) if status == "Interrupted"], 60
    )
    assert "memory of the machine ran short" in message and "started after others" in message
    assert "Interrupted" not in [status for status, _ in transitions(jobs, first)]
    jobs.completed(first)
    jobs.saying(second, "ready")
    eventually(lambda: inside(second, "touch", "/dev/shm/go").returncode == 0)
    jobs.completed(second)


def test_what_runs_at_once_is_said_at_creation(jobs, new_house):
    promise = new_house("--memory", "1GiB", "--packing", "promise")
    other = Jobs(promise)
    other.put("tuned/run.sh", "echo loss=1")
    algorithm = {
        "TrainingImage": "shoal/host",
        "TrainingInputMode": "File",
        "MetricDefinitions": [{"Name": "loss", "Regex": "loss=(.*)"}],
    }
    request = other.request("tuned", AlgorithmSpecification=algorithm, InputDataConfig=[other.channel("code", "tuned")])
    script = {"sagemaker_program": "run.sh", "sagemaker_submit_directory": "/opt/ml/input/data/code"}
    definition = {
        "StaticHyperParameters": script,
        **{name: member for name, member in request.items() if name != "TrainingJobName"},
    }
    answer = other.sagemaker.create_hyper_parameter_tuning_job(
        HyperParameterTuningJobName="four",
        HyperParameterTuningJobConfig={
            "Strategy": "Random",
            "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": 1, "MaxParallelTrainingJobs": 4},
            "ParameterRanges": {"ContinuousParameterRanges": [{"Name": "x", "MinValue": "0", "MaxValue": "1"}]},
        },
        TrainingJobDefinition=definition,
    )
    said = "4 training jobs in parallel are requested, 1 fits here: each needs 1.0 GiB of memory, and there is 1.0 GiB in all"
    assert said in answer["ResponseMetadata"]["HTTPHeaders"]["x-shoal-notice"]
    listed = lambda: other.sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(
        HyperParameterTuningJobName="four"
    )["TrainingJobSummaries"]
    [trial] = eventually(listed, 60)
    assert any(said in message for _, message in transitions(other, trial["TrainingJobName"]))


def test_shoal_tune_says_what_runs_at_once(jobs):
    """With packing by use as well: instances are counted then."""
    command = ["--metric", r"loss=loss=(\S+)", "--minimize", "loss", "--range", "x=0..1", "--trials", "1", "--detach"]
    tune = lambda name, parallel: (
        run(jobs.house, "tune", "--name", name, "--parallel", parallel, *command, "--", "/bin/echo", "loss=1").stderr
    )
    notice = r"9 training jobs in parallel are requested, \d fits? here: each needs .*, and there is .* in all\n"
    assert re.search(notice, tune("nine", "9")) and "in parallel" not in tune("one", "1")
    jobs.sagemaker.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName="nine")
