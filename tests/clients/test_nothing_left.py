"""Whatever happens to a training job, nothing of it stays on the machine."""

import os
import signal

import pytest
import traces
from house import eventually
from jobs import Jobs

# It looks for namespaces by their numbers, which others' may be given afterwards.
pytestmark = pytest.mark.alone

WAITS = "trap 'exit 0' TERM; echo ready; while true; do sleep 0.1; done"


@pytest.fixture(params=["as we are", "ordinary user", "plain processes"], scope="module")
def jobs(request, make_house):
    """Servers of every kind, whose instances live two seconds without them."""
    flags = ["--lease-s", "2", "--grace-s", "1"]
    if request.param == "as we are":
        return Jobs(make_house(*flags))
    if request.param == "ordinary user":
        return Jobs(make_house(*flags, ordinary=True))
    return Jobs(make_house(*flags, variables={"SHOAL_ISOLATION": "processes"}))


def running(jobs, line=WAITS, instances=1):
    """A job that runs on all its instances, and the namespaces that it lives in."""
    jobs.put("left/in/a.txt", "a channel")
    name = jobs.command(line, instances, InputDataConfig=[jobs.channel("train", "left/in/")])
    for host in range(instances):
        jobs.saying(name, "ready", f"algo-{host + 1}")
    return name, traces.namespaces(jobs.house)


def test_looking_finds_a_running_job(jobs):
    """The other tests are worth something only if the traces are really seen."""
    name, namespaces = running(jobs, instances=2)
    left = traces.of_jobs(jobs.house, namespaces)
    assert {"processes", "files", "sockets"} <= set(left)
    assert len(traces.agents(jobs.house)) == 2 and len(traces.ranks(jobs.house)) == 2
    if "SHOAL_ISOLATION" not in jobs.house.variables:
        assert "namespaces" in left and len(namespaces) > 6
        assert jobs.house.user or os.getuid() != 0 or "control groups" in left
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    jobs.wait(name)
    traces.nothing_left(jobs.house, namespaces)


@pytest.mark.parametrize(
    "end", ["true", "exit 1", "kill -9 $$", "setsid sleep 1000 & exit 0", "sleep 1000 & sleep 1000 & exit 0"]
)
def test_after_its_own_end(jobs, end):
    name, namespaces = running(jobs, f"echo ready; sleep 0.5; {end}", instances=2)
    jobs.wait(name)
    traces.nothing_left(jobs.house, namespaces)


def test_after_a_stop(jobs):
    name, namespaces = running(jobs)
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    traces.nothing_left(jobs.house, namespaces)


def test_after_a_stop_that_is_not_listened_to(jobs):
    name, namespaces = running(jobs, "trap '' TERM; echo ready; while true; do sleep 0.1; done")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    traces.nothing_left(jobs.house, namespaces)


@pytest.mark.parametrize("host", [1, 2])
def test_after_the_death_of_an_agent(jobs, host):
    """The first one's holds the network of all."""
    name, namespaces = running(jobs, instances=2)
    os.kill(traces.agents(jobs.house)[host], signal.SIGKILL)
    assert f"algo-{host}" in jobs.failed(name)
    traces.nothing_left(jobs.house, namespaces)


def test_after_the_death_of_a_rank(jobs):
    name, namespaces = running(jobs)
    (rank,) = traces.ranks(jobs.house)
    os.kill(rank, signal.SIGKILL)
    assert "SIGKILL" in jobs.failed(name)
    traces.nothing_left(jobs.house, namespaces)


def test_after_the_death_of_all_that_belongs_to_it(jobs):
    name, namespaces = running(jobs, instances=2)
    for pid in traces.processes(jobs.house):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    jobs.failed(name)
    traces.nothing_left(jobs.house, namespaces)


def test_after_the_end_of_a_lease(jobs):
    """Nobody comes back: the instances end by themselves. Then somebody does, and says so."""
    house = jobs.house
    name, namespaces = running(jobs, instances=2)
    house.stop(signal.SIGKILL)
    eventually(lambda: not traces.processes(house))
    assert (traces.users_of(namespaces), traces.control_groups(house), traces.mounts(house)) == ([], [], [])
    house.start()
    jobs.connect()
    assert "algo-" in jobs.failed(name)
    traces.nothing_left(house)


def test_after_the_death_of_the_server_and_all_agents(jobs):
    """The next start finds what nobody looks after any more."""
    house = jobs.house
    name, namespaces = running(jobs, instances=2)
    agents = traces.agents(house).values()
    house.stop(signal.SIGKILL)
    for agent in agents:
        os.kill(agent, signal.SIGKILL)
    house.start()
    jobs.connect()
    jobs.failed(name)
    traces.nothing_left(house, namespaces)


def test_the_server_takes_its_sockets_with_it(jobs):
    house = jobs.house
    assert list(house.data.glob("*.sock"))
    house.stop()
    assert not list(house.data.glob("*.sock")) and not (house.data / "address").exists()
    house.start()
    jobs.connect()
