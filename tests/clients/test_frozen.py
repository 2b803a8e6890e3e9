"""Processes that are stopped (SIGSTOP) and neither work nor die: agents, programs, the server."""

import contextlib
import os
import signal
import time

import pytest
import traces
from house import eventually
from jobs import Jobs

COUNT = (
    "i=1; while [ $i -le 300 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; echo m > $SM_MODEL_DIR/$SM_CURRENT_HOST"
)
LINES = [f"line {i}" for i in range(1, 301)]
WAITS = "trap 'exit 0' TERM; echo ready; while true; do sleep 0.1; done"


@contextlib.contextmanager
def frozen(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def jobs(make_house):
    return Jobs(make_house("--silence-s", "5", "--grace-s", "1"))


def running(jobs, line=WAITS, word="ready", instances=3):
    name = jobs.command(line, instances)
    for host in range(instances):
        jobs.saying(name, word, f"algo-{host + 1}")
    return name, traces.namespaces(jobs.house)


def test_an_agent_leads_a_session_of_its_own(jobs):
    """Else the kernel hangs up one that is stopped when its server dies."""
    name, _ = running(jobs)
    agents = traces.agents(jobs.house)
    assert {os.getsid(pid) for pid in agents.values()} == set(agents.values())
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    traces.nothing_left(jobs.house)


@pytest.mark.parametrize("host", [1, 2])
def test_an_agent_that_stays_frozen_is_given_up(jobs, host):
    """The first one's holds the network of all."""
    name, namespaces = running(jobs)
    with frozen(traces.agents(jobs.house)[host]):
        reason = jobs.failed(name)
        assert reason.startswith(f"InternalServerError: the agent of algo-{host} was silent for 5 s"), reason
        traces.nothing_left(jobs.house, namespaces)


def test_another_attempt_follows_where_the_request_allows_it(jobs):
    name = jobs.command(WAITS, RetryStrategy={"MaximumRetryAttempts": 1})
    jobs.saying(name, "ready")
    agents = set(traces.agents(jobs.house).values())
    with frozen(*agents):
        eventually(lambda: agents.isdisjoint(traces.agents(jobs.house).values()) and traces.ranks(jobs.house))
        jobs.until(name, "Training")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    traces.nothing_left(jobs.house)


def test_an_agent_that_is_frozen_while_the_server_starts_anew_is_given_up(jobs):
    house = jobs.house
    name, namespaces = running(jobs)
    house.stop(signal.SIGKILL)
    with frozen(traces.agents(house)[2]):
        house.start()
        jobs.connect()
        assert "the agent of algo-2 was silent" in jobs.failed(name)
        traces.nothing_left(house, namespaces)


def test_an_agent_that_was_frozen_for_a_while_goes_on(jobs):
    name, _ = running(jobs, COUNT, "line 1", instances=2)
    with frozen(traces.agents(jobs.house)[2]):
        time.sleep(1.5)
    jobs.completed(name)
    assert [jobs.lines(name, host) for host in ("algo-1", "algo-2")] == [LINES] * 2
    assert set(jobs.artifact(name)) == {"algo-1", "algo-2"}


def test_a_server_that_was_frozen_blames_nobody(jobs):
    """For longer than agents may be silent, and than what clients and agents wait for between
    two words.
    """
    name, _ = running(jobs, COUNT, "line 1", instances=2)
    idle, _ = running(jobs, instances=1)
    agents = traces.identities(traces.programs(jobs.house, "agent"))
    with frozen(jobs.house.pid):
        time.sleep(10)
    jobs.completed(name)
    assert [jobs.lines(name, host) for host in ("algo-1", "algo-2")] == [LINES] * 2
    assert traces.identities(traces.programs(jobs.house, "agent")) <= agents
    assert jobs.describe(idle)["TrainingJobStatus"] == "InProgress"
    jobs.sagemaker.stop_training_job(TrainingJobName=idle)
    assert jobs.wait(idle)["TrainingJobStatus"] == "Stopped"
    traces.nothing_left(jobs.house)


@pytest.mark.parametrize("who", ["program", "init"])
def test_a_frozen_program_can_be_stopped(jobs, who):
    """What the program does with its time is its own affair; a stop ends it all the same."""
    name, namespaces = running(jobs, instances=1)
    (pid,) = traces.ranks(jobs.house) if who == "program" else traces.inits(jobs.house).values()
    with frozen(pid):
        jobs.sagemaker.stop_training_job(TrainingJobName=name)
        assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
        traces.nothing_left(jobs.house, namespaces)


def test_a_frozen_program_reaches_its_maximum_runtime(jobs):
    name = jobs.command(WAITS, StoppingCondition={"MaxRuntimeInSeconds": 8})
    eventually(lambda: traces.ranks(jobs.house))
    (pid,) = traces.ranks(jobs.house)
    with frozen(pid):
        it = jobs.wait(name)
        assert (it["TrainingJobStatus"], it["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
        traces.nothing_left(jobs.house)
