"""Whatever happens to a training job, nothing of it stays on the machine."""

import os
import pathlib
import signal

import pytest
import traces
from house import eventually
from jobs import Jobs

WAITS = "trap 'exit 0' TERM; echo ready; while true; do sleep 0.1; done"


def nothing_left(house, seconds=20):
    eventually(lambda: not traces.of_jobs(house) or None, seconds) if traces.of_jobs(house) else None
    assert traces.of_jobs(house) == {}


def of_instance(house, host, what):
    """Process ids by command line: an agent, or what runs in its instance."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        words = [word.decode(errors="replace") for word in command]
        if what == "agent" and "agent" in words[1:2] and house.id in words and words[-2:][0] == str(host):
            found.append(int(entry.name))
        if what == "rank" and words[:2] == ["/bin/sh", "/opt/ml/input/data/code/run.sh"]:
            found.append(int(entry.name))
    return found


@pytest.fixture
def jobs(new_house):
    return Jobs(new_house("--lease-s", "2", "--grace-s", "1"))


def test_looking_finds_a_running_job(jobs):
    """The other tests are worth something only if the traces are really seen."""
    name = jobs.script(WAITS, instances=2)
    jobs.saying(name, "ready")
    left = traces.of_jobs(jobs.house)
    assert {"processes", "runs"} <= set(left)
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    jobs.wait(name)
    nothing_left(jobs.house)


@pytest.mark.parametrize("script", ["true", "exit 1", "kill -9 $$", "setsid sleep 100 & exit 0"], ids=["success", "failure", "killed", "daemon"])
def test_after_its_own_end(jobs, script):
    jobs.wait(jobs.script(script, instances=2))
    nothing_left(jobs.house)


def test_after_a_stop(jobs):
    name = jobs.script(WAITS)
    jobs.saying(name, "ready")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    jobs.wait(name)
    nothing_left(jobs.house)


def test_after_the_death_of_an_agent(jobs):
    name = jobs.script(WAITS, instances=2)
    jobs.saying(name, "ready", "algo-2")
    (agent,) = of_instance(jobs.house, 2, "agent")
    os.kill(agent, signal.SIGKILL)
    assert "algo-2" in jobs.failed(name)
    nothing_left(jobs.house)


def test_after_the_death_of_a_rank(jobs):
    name = jobs.script(WAITS)
    jobs.saying(name, "ready")
    for rank in of_instance(jobs.house, 1, "rank"):
        os.kill(rank, signal.SIGKILL)
    assert "SIGKILL" in jobs.failed(name)
    nothing_left(jobs.house)


def test_after_the_end_of_a_lease(jobs):
    name = jobs.script(WAITS)
    jobs.saying(name, "ready")
    jobs.house.stop(signal.SIGKILL)
    house = jobs.house
    eventually(lambda: not traces.processes(house.id, but=[house.pid]) or None)
    assert traces.control_groups(house.id) == [] and traces.mounts(house.data) == []


def test_no_socket_stays_when_the_server_ends(jobs):
    assert list(jobs.house.data.glob("*.sock"))
    jobs.house.stop()
    assert not list(jobs.house.data.glob("*.sock")) and not (jobs.house.data / "address").exists()
