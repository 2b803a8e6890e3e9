"""Stops: SIGTERM, a grace, SIGKILL; by the user and by time."""

import data
import pytest
from jobs import Jobs

pytestmark = pytest.mark.targets

TRAPS = """
trap 'echo stopping; echo half > /opt/ml/model/half.txt; exit 0' TERM
echo ready
while true; do sleep 0.1; done
"""


def test_a_program_can_save_what_it_has(jobs):
    name = jobs.script(TRAPS)
    jobs.saying(name, "ready")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.describe(name)["TrainingJobStatus"] in ("Stopping", "Stopped")
    it = jobs.wait(name)
    assert (it["TrainingJobStatus"], it["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert "stopping" in jobs.lines(name)
    assert jobs.artifact(name) == {"half.txt": b"half\n"}


def test_a_deaf_program_is_killed_after_the_grace(new_house):
    jobs = Jobs(new_house("--grace-s", "1"))
    name = jobs.script("trap '' TERM; echo ready; while true; do sleep 0.1; done")
    jobs.saying(name, "ready")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"


def test_time_runs_out(jobs):
    name = jobs.script(TRAPS, StoppingCondition={"MaxRuntimeInSeconds": 6})
    it = jobs.wait(name)
    assert (it["TrainingJobStatus"], it["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
    assert jobs.artifact(name) == {"half.txt": b"half\n"}


def test_a_stop_before_the_program_has_started(jobs):
    """Whenever a stop comes, the job ends as stopped or as what it was already."""
    for _ in range(5):
        name = jobs.script(TRAPS)
        jobs.sagemaker.stop_training_job(TrainingJobName=name)
        assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"


def test_all_hosts_are_told(jobs):
    name = jobs.script(TRAPS.replace("half.txt", "$(hostname).txt"), instances=3)
    for host in ("algo-1", "algo-2", "algo-3"):
        jobs.saying(name, "ready", host)
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    assert sorted(jobs.artifact(name)) == ["algo-1.txt", "algo-2.txt", "algo-3.txt"]


def test_a_program_that_fails_when_stopped_is_stopped(jobs):
    name = jobs.script("trap 'exit 9' TERM; echo ready; while true; do sleep 0.1; done")
    jobs.saying(name, "ready")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    it = jobs.wait(name)
    assert it["TrainingJobStatus"] == "Stopped" and "FailureReason" not in it


def test_xgboost_stops(jobs):
    jobs.put("stopping/train.csv", data.as_csv(data.rows(2000, 1)))
    name = jobs.xgboost("stopping/train.csv", num_round=1000000, max_depth=3)
    jobs.saying(name, "#011train-rmse")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
