"""RetryStrategy: what our own side broke is tried again, what the program broke is not."""

import os
import signal

import pytest
import traces
from house import eventually
from jobs import GROUP, Jobs

# Ends well only where the gate's channel shows that it is open; each attempt sees the channel anew.
GATE = """
if [ -e /opt/ml/input/data/gate/open ]; then echo again; echo m > /opt/ml/model/$(hostname); echo loss=2; exit 0; fi
echo loss=1; echo ready; sleep 1000
"""


@pytest.fixture(scope="module")
def own_jobs(make_house):
    """Agents are killed here; and one server for all tests of this file, so each finds its own
    job's.
    """
    return Jobs(make_house())


def gated(jobs, name, **changes):
    jobs.put(f"{name}/gate/wait", "")
    gate = jobs.channel("gate", f"{name}/gate")
    return jobs.script(GATE, instances=2, channels=[gate], metrics=[("loss", r"loss=(\S+)")], name=name, **changes)


def kill_agent(jobs, host):
    os.kill(traces.agents(jobs.house)[host], signal.SIGKILL)


def statuses(description):
    return [transition["Status"] for transition in description["SecondaryStatusTransitions"]]


def streams(jobs, name):
    found = jobs.logs_client.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")["logStreams"]
    return [stream["logStreamName"] for stream in found]


def test_a_killed_agent_is_followed_by_another_attempt(own_jobs):
    jobs = own_jobs
    name = gated(jobs, "retried", RetryStrategy={"MaximumRetryAttempts": 1})
    jobs.saying(name, "ready", "algo-1")
    jobs.saying(name, "ready", "algo-2")
    first = traces.agents(jobs.house)
    jobs.put("retried/gate/open", "")
    kill_agent(jobs, 2)
    it = jobs.completed(name)
    assert statuses(it) == [
        "Starting",
        "Downloading",
        "Training",
        "Starting",
        "Downloading",
        "Training",
        "Uploading",
        "Completed",
    ]
    again = it["SecondaryStatusTransitions"][3]["StatusMessage"]
    assert "retry 1 of 1 after InternalServerError" in again and "algo-2" in again
    assert it["RetryStrategy"] == {"MaximumRetryAttempts": 1} and "FailureReason" not in it
    assert jobs.metrics(name) == {"loss": 2}
    assert set(jobs.artifact(name)) == {"algo-1", "algo-2"}
    assert it["BillableTimeInSeconds"] <= it["TrainingTimeInSeconds"]
    assert len(streams(jobs, name)) == 4, "each attempt has log streams of its own"
    eventually(lambda: not set(first.values()) & set(traces.processes(jobs.house)))


def test_without_a_retry_strategy_it_fails(own_jobs):
    jobs = own_jobs
    name = gated(jobs, "final")
    jobs.saying(name, "ready", "algo-2")
    kill_agent(jobs, 2)
    reason = jobs.failed(name)
    assert reason.startswith("InternalServerError: ") and "algo-2" in reason
    assert len(streams(jobs, name)) == 2


def test_the_last_attempt_tells_why(own_jobs):
    jobs = own_jobs
    name = gated(jobs, "twice", RetryStrategy={"MaximumRetryAttempts": 1})
    for host in (2, 1):
        count = 2 if host == 2 else 4
        eventually(
            lambda count=count: (
                len(streams(jobs, name)) == count and jobs.describe(name)["SecondaryStatus"] == "Training"
            )
        )
        jobs.saying(name, "ready", "algo-1")
        jobs.saying(name, "ready", "algo-2")
        kill_agent(jobs, host)
        if host == 2:
            jobs.until(name, "Starting")
    reason = jobs.failed(name)
    assert reason.startswith("InternalServerError: ") and "algo-1" in reason
    assert statuses(jobs.describe(name)).count("Training") == 2


def test_a_program_that_fails_is_not_tried_again(own_jobs):
    jobs = own_jobs
    name = jobs.script("exit 3", name="own-fault", RetryStrategy={"MaximumRetryAttempts": 30})
    assert "exit code: 3" in jobs.failed(name)
    assert statuses(jobs.describe(name)).count("Training") == 1


def test_a_stop_ends_the_retries(own_jobs):
    jobs = own_jobs
    name = gated(jobs, "stopped", RetryStrategy={"MaximumRetryAttempts": 30})
    jobs.saying(name, "ready", "algo-2")
    kill_agent(jobs, 2)
    jobs.until(name, "Starting")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
