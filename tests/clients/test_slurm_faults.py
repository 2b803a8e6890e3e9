"""Faults between a server and its Slurm cluster, and slurmrestd in place of Slurm's commands.

`SHOAL_SOAK` makes them as long and as many as issue 17 has them: a minute, 200 jobs.
"""

import contextlib
import functools
import time

import cluster_faults
import machines
import pytest
import slurm_cluster
from cluster_faults import IS_SOAK, WAITS, message
from house import House, eventually
from jobs import Jobs

JOBS = 200 if IS_SOAK else 12
#: Of an agent, after which its instance is given up.
SILENCE_S = 3
#: The node whose disk is small, and no other.
TYPES = """
[target.cluster.types]
"ml.m5.xlarge" = { args = ["--nodelist=n3"] }
"ml.c5.xlarge" = { args = ["--exclude=n3"] }
"ml.g5.2xlarge" = { partition = "gpu", gres = "gpu:2" }
"""


@pytest.fixture(scope="module")
def cluster(start_cluster):
    return start_cluster(slurm_cluster, nodes=3, own_caches=True, disks={3: "8m"})


class Counted:
    """Slurm's commands, each call of which leaves a line."""

    NAMES = ("sbatch", "squeue", "scancel", "sinfo")

    def __init__(self, directory):
        self.directory, self.log = directory, directory / "calls"
        self.log.touch()
        for name in self.NAMES:
            path = directory / name
            path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.log}\nexec /usr/bin/{name} "$@"\n')
            path.chmod(0o755)
        self.variables = {"PATH": f"{directory}:{machines.PATH}"}

    def calls(self):
        return self.log.read_text().splitlines()


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    return Counted(tmp_path_factory.mktemp("commands"))


@pytest.fixture(scope="module")
def jobs(cluster, commands):
    house = House(settings=cluster.settings(cluster.network.here_too) + TYPES, variables=commands.variables)
    yield Jobs(house)
    house.close()


def on_slurm(jobs, line, kind="ml.c5.xlarge", **more):
    return jobs.command(line, instance_type=kind, **more)


def test_a_network_that_is_cut_loses_no_line_and_doubles_none(jobs, cluster):
    @contextlib.contextmanager
    def cut_off():
        [node] = {int(text.strip()[1:]) for text in cluster.call("squeue", "-h", "-t", "R", "-o", "%N").splitlines()}
        with cut(cluster, node):
            yield

    cluster_faults.a_cut_loses_no_line_and_doubles_none(jobs, functools.partial(on_slurm, jobs), cut_off)


@contextlib.contextmanager
def cut(cluster, *nodes):
    """Nothing that these nodes send reaches the server."""
    for node in nodes:
        cluster.network.cut_to(node, cluster.network.here_too)
    try:
        yield
    finally:
        for node in nodes:
            cluster.network.cut_to(node, cluster.network.here_too, is_cut=False)


def test_agents_that_cannot_reach_the_server_are_explained(jobs, cluster):
    """As where agents_address is wrong on the nodes, or a firewall closes its port."""
    with cut(cluster, 1, 2):
        name = on_slurm(jobs, "echo reached")
        if IS_SOAK:
            eventually(lambda: "no agent has connected" in message(jobs, name))
            text = message(jobs, name)
            assert f"{cluster.network.here_too}:" in text and "agents_address" in text and "on n" in text, text
        else:
            eventually(lambda: cluster.call("squeue", "-h", "-t", "R"))
    jobs.completed(name)
    assert jobs.lines(name) == ["reached"]


def test_an_input_that_does_not_fit_on_a_node(jobs, cluster):
    create = functools.partial(on_slurm, jobs, kind="ml.m5.xlarge")
    cluster_faults.an_input_does_not_fit(jobs, create, ["node n3 ", str(cluster.cache)])


def test_many_jobs_at_once_run_once_each(jobs, cluster, commands):
    before, begun = len(commands.calls()), time.monotonic()
    cluster_faults.many_at_once(jobs, functools.partial(on_slurm, jobs), JOBS)
    seconds = time.monotonic() - begun
    calls = [line.split()[0] for line in commands.calls()[before:] if "--test-only" not in line]
    assert calls.count("sbatch") == JOBS
    print(
        f"{JOBS} jobs in {seconds:.1f} s, squeue {calls.count('squeue')} times, scancel {calls.count('scancel')} times"
    )
    # Each end is waited for by looks that all who wait share.
    assert calls.count("squeue") <= JOBS + 3 * seconds, (calls.count("squeue"), seconds)


def test_types_that_the_cluster_does_not_have_are_shown(jobs):
    shown = jobs.house.shoal("targets").stdout
    assert 'types."ml.g5.2xlarge": the cluster has no partition gpu; it has main, high, short' in shown, shown


def test_a_suspended_job_is_not_given_up(cluster, commands):
    settings = f"silence_s = {SILENCE_S}\n{cluster.settings(cluster.network.here_too)}{TYPES}"
    house = House(settings=settings, variables=commands.variables)
    try:
        jobs = Jobs(house)
        name = on_slurm(jobs, WAITS)
        jobs.saying(name, "ready")
        [number] = cluster.call("squeue", "-h", "-t", "R", "-o", "%i").split()
        cluster.call("scontrol", "suspend", number)
        eventually(lambda: cluster.call("squeue", "-h", "-t", "S"))
        time.sleep(3 * SILENCE_S)
        assert jobs.describe(name)["TrainingJobStatus"] == "InProgress"
        cluster.call("scontrol", "resume", number)
        time.sleep(2 * SILENCE_S)
        assert jobs.describe(name)["TrainingJobStatus"] == "InProgress"
        jobs.sagemaker.stop_training_job(TrainingJobName=name)
        assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    finally:
        house.close()


@pytest.fixture(scope="module")
def by_rest(cluster, tmp_path_factory):
    commands = Counted(tmp_path_factory.mktemp("unused"))
    house = House(settings=cluster.settings(rest=True), variables=commands.variables)
    jobs = Jobs(house)
    yield jobs
    house.close()
    # What slurmrestd of that version cannot do.
    assert {line for line in commands.calls() if "--test-only" not in line} == set()


def test_slurmrestd_starts_and_ends_jobs(by_rest, cluster):
    two = by_rest.command('echo "$SM_HOSTS"', instances=2)
    stopped = by_rest.command(WAITS)
    by_rest.saying(stopped, "ready")
    by_rest.sagemaker.stop_training_job(TrainingJobName=stopped)
    by_rest.completed(two)
    assert by_rest.lines(two, "algo-2")[0] == '["algo-1","algo-2"]'
    assert by_rest.wait(stopped)["TrainingJobStatus"] == "Stopped"
    shown = by_rest.house.shoal("targets").stdout
    assert "partition main (default): up, " in shown and "of 24 processors free" in shown, shown
    assert "partition short: up, " in shown and "at most 1:00" in shown, shown


def test_slurmrestd_that_is_gone_delays_and_fails_nothing(by_rest, cluster):
    running = by_rest.command(WAITS)
    by_rest.saying(running, "ready")
    cluster.kill_rest()
    try:
        late = by_rest.command("echo late")
        eventually(lambda: f"slurmrestd at {cluster.rest}" in message(by_rest, late))
        shown = by_rest.house.shoal("targets", check=False)
        assert shown.returncode == 1 and "check that it runs there" in shown.stdout, shown.stdout
        assert by_rest.describe(running)["TrainingJobStatus"] == "InProgress"
    finally:
        cluster.start_rest()
    by_rest.completed(late)
    by_rest.sagemaker.stop_training_job(TrainingJobName=running)
    assert by_rest.wait(running)["TrainingJobStatus"] == "Stopped"


def test_what_slurmrestd_refuses_is_explained(by_rest, tmp_path):
    house, toml = by_rest.house, by_rest.house.data / "shoal.toml"
    settings = toml.read_text()
    (tmp_path / "token").write_text("SLURM_JWT=no.token.atall\n")
    [line] = [line for line in settings.splitlines() if line.startswith("token_command")]
    for changed, expected in [
        (
            settings.replace(line, f'token_file = "{tmp_path / "token"}"'),
            "refuses the token (HTTP 401): set token_file",
        ),
        (settings.replace(line, f'{line}\napi_version = "v0.0.39"'), "has no API v0.0.39: set api_version"),
    ]:
        house.stop()
        toml.write_text(changed)
        house.start()
        shown = house.shoal("targets", check=False)
        assert shown.returncode == 1 and expected in shown.stdout, shown.stdout
    house.stop()
    toml.write_text(settings)
    house.start()
    by_rest.connect()
    by_rest.completed(by_rest.command("true"))
