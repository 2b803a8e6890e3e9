"""Stops: SIGTERM, a grace, SIGKILL; by the user and by time."""

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
    from jobs import Jobs

    jobs = Jobs(new_house("--grace-s", "1"))
    name = jobs.script("trap '' TERM; echo ready; while true; do sleep 0.1; done")
    jobs.saying(name, "ready")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"


def test_time_runs_out(jobs):
    name = jobs.script(TRAPS, StoppingCondition={"MaxRuntimeInSeconds": 1})
    it = jobs.wait(name)
    assert (it["TrainingJobStatus"], it["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
    assert jobs.artifact(name) == {"half.txt": b"half\n"}


def test_what_waits_can_be_stopped(new_house):
    from jobs import Jobs

    jobs = Jobs(new_house("--instances", "1"))
    first = jobs.script("echo ready; sleep 100")
    jobs.saying(first, "ready")
    second = jobs.script("true")
    it = jobs.until(second, "Pending")
    assert it["TrainingJobStatus"] == "InProgress"
    assert "instance" in it["SecondaryStatusTransitions"][-1]["StatusMessage"]
    jobs.sagemaker.stop_training_job(TrainingJobName=second)
    it = jobs.wait(second)
    assert it["TrainingJobStatus"] == "Stopped" and "TrainingStartTime" not in it
    third = jobs.script("true")
    jobs.sagemaker.stop_training_job(TrainingJobName=first)
    jobs.completed(third)
