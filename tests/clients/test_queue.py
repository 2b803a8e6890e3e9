"""What does not fit waits, says why and where it stands, and runs later; what fits beside it
runs at once.
"""

import pytest
from jobs import Jobs

# Runs until it is stopped.
WAITS = "echo ready; trap 'exit 0' TERM; while true; do sleep 0.1; done"
# 4 GiB each.
SMALL, LARGE = {"instance_type": "ml.t3.medium"}, {"instance_type": "ml.m5.large"}


@pytest.fixture
def jobs(new_house):
    """A machine of 12 GiB, of which each instance is promised what its type has."""
    return Jobs(new_house("--memory", "12GiB", "--packing", "promise"))


def message(jobs, name):
    return jobs.describe(name)["SecondaryStatusTransitions"][-1]["StatusMessage"]


def stop(jobs, *names):
    for name in names:
        jobs.sagemaker.stop_training_job(TrainingJobName=name)
    return [jobs.wait(name)["TrainingJobStatus"] for name in names]


def test_memory_is_waited_for(jobs):
    first = jobs.script(WAITS, **LARGE)
    jobs.saying(first, "ready")
    second, third = jobs.script("true", **LARGE), jobs.script("true", **LARGE)
    for name, place in ((second, "1"), (third, "2")):
        jobs.until(name, "Pending")
        said = message(jobs, name)
        assert "memory" in said and "8.0 GiB" in said and "4.0 GiB" in said and place in said, said
    assert jobs.describe(second)["TrainingJobStatus"] == "InProgress"
    assert stop(jobs, first) == ["Stopped"]
    ended = [jobs.completed(name) for name in (second, third)]
    assert ended[0]["TrainingStartTime"] <= ended[1]["TrainingStartTime"]
    assert "Pending" in [transition["Status"] for transition in ended[0]["SecondaryStatusTransitions"]]


def test_a_small_job_goes_past_a_large_one_that_waits(jobs):
    first = jobs.script(WAITS, **LARGE)
    jobs.saying(first, "ready")
    large = jobs.script("true", **LARGE)
    jobs.until(large, "Pending")
    small = jobs.script("true", StoppingCondition={"MaxRuntimeInSeconds": 60}, **SMALL)
    jobs.completed(small)
    assert jobs.describe(large)["SecondaryStatus"] == "Pending"
    stop(jobs, first)
    jobs.completed(large)


def test_all_instances_start_or_none(jobs):
    first = jobs.script(WAITS, **LARGE)
    jobs.saying(first, "ready")
    gang = jobs.script("hostname", instances=3, **SMALL)
    jobs.until(gang, "Pending")
    assert jobs.logs(gang) == {}
    stop(jobs, first)
    jobs.completed(gang)
    assert sorted(jobs.logs(gang)) == ["algo-1", "algo-2", "algo-3"]


def test_what_waits_can_be_stopped_and_the_next_moves_up(jobs):
    first = jobs.script(WAITS, **LARGE)
    jobs.saying(first, "ready")
    second, third = jobs.script("true", **LARGE), jobs.script("true", **LARGE)
    jobs.until(third, "Pending")
    before = message(jobs, third)
    assert stop(jobs, second) == ["Stopped"]
    assert "TrainingStartTime" not in jobs.describe(second)
    assert message(jobs, third) != before
    stop(jobs, first)
    jobs.completed(third)


def test_an_instance_that_is_too_large_is_capped_and_told(jobs):
    name = jobs.script("true", instance_type="ml.m5.24xlarge")
    it = jobs.completed(name)
    said = " ".join(transition["StatusMessage"] for transition in it["SecondaryStatusTransitions"])
    assert "capped" in said and "12.0 GiB" in said, said
    assert any("capped" in line for line in jobs.logs(name)["algo-1"])


def test_more_instances_than_the_server_has(jobs):
    with pytest.raises(jobs.sagemaker.exceptions.ResourceLimitExceeded, match="InstanceCount"):
        jobs.script("true", instances=1000, **SMALL)
