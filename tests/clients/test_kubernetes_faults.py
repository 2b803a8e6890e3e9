"""Faults between a server, its Kubernetes cluster and the agents there; those that Slurm's tests have,
too, are in cluster_faults.py.
"""

import contextlib
import functools
import os
import signal

import cluster_faults
import k8s_cluster
import pytest
import traces
from cluster_faults import IS_SOAK, WAITS
from house import SHOAL, House, eventually
from jobs import Jobs

JOBS = 200 if IS_SOAK else 20
#: n3 has a small disk, and no other; a job that needs GPUs of n2 may find none.
TYPES = """
[target.cluster.types]
"ml.c5.xlarge" = { cpus = 1, node_selector = { "tests/disk" = "large" } }
"ml.m5.xlarge" = { cpus = 1, node_selector = { "tests/disk" = "small" } }
"ml.g5.xlarge" = { cpus = 1, gpus = 2, node_selector = { "tests/node" = "n2" } }
"""


@pytest.fixture(scope="module")
def cluster(start_cluster):
    return start_cluster(k8s_cluster, disks={3: "8m"})


@pytest.fixture(scope="module")
def untouched(cluster):
    """What the namespace has where no job has run."""
    return cluster.objects()


@pytest.fixture(scope="module")
def jobs(cluster, untouched):
    house = House(settings=cluster.settings(SHOAL, cluster.network.here_too) + TYPES)
    yield Jobs(house)
    house.close()


@pytest.fixture
def create(jobs):
    return functools.partial(on_pods, jobs)


def on_pods(jobs, line, kind="ml.c5.xlarge", **more):
    return jobs.command(line, instance_type=kind, **more)


def agent(jobs):
    """The id of the running job's, once no other's is left."""
    [pid] = eventually(lambda: len(found := traces.agents_of_all(jobs.house)) == 1 and found)
    return pid


def there(cluster):
    return sorted(it["metadata"]["uid"] for it in cluster.pods().values())


def test_a_network_that_is_cut_loses_no_line_and_doubles_none(jobs, cluster, create):
    """Between the pods and the server alone: nodes are in touch with the API server."""

    @contextlib.contextmanager
    def cut_off():
        pid = agent(jobs)
        cluster.network.cut_process_to(pid, cluster.network.here_too)
        try:
            yield
        finally:
            cluster.network.cut_process_to(pid, cluster.network.here_too, is_cut=False)

    cluster_faults.a_cut_loses_no_line_and_doubles_none(jobs, create, cut_off)


def test_an_agent_that_is_killed_is_retried(jobs, cluster, create):
    with cluster.creations() as made:
        name = cluster_faults.ends_at_its_second_attempt(jobs, create, "kubernetes/agent")
        os.kill(agent(jobs), signal.SIGKILL)
        jobs.completed(name)
    assert cluster_faults.attempts(jobs, name) == 2
    assert len(made) == 2


def test_an_agent_that_is_killed_fails_a_job_without_retries(jobs, create):
    name = create(WAITS)
    jobs.saying(name, "ready")
    os.kill(agent(jobs), signal.SIGKILL)
    reason = jobs.failed(name)
    assert reason.startswith("InternalServerError: ") and "the agent of algo-1 ended without a report" in reason, reason
    # Of SIGKILL: all that Kubernetes knows of it.
    assert "137" in reason, reason


def test_an_input_that_does_not_fit_on_a_node(jobs, cluster):
    create = functools.partial(on_pods, jobs, kind="ml.m5.xlarge")
    cluster_faults.an_input_does_not_fit(jobs, create, ["node n3 ", str(cluster.cache)])


def test_an_input_whose_copy_does_not_fit_on_a_node(jobs, cluster):
    """In a pod programs have copies of inputs, which are theirs to change."""
    create = functools.partial(on_pods, jobs, kind="ml.m5.xlarge")
    cluster_faults.an_input_does_not_fit(jobs, create, ["node n3 ", str(cluster.cache)], megabytes=6)


def test_inputs_of_earlier_jobs_make_room_for_copies(jobs):
    """Each input fits twice, and no more."""
    for number in range(3):
        jobs.put(f"faults/room/{number}/object", os.urandom(3 << 20))
        channel = jobs.channel("data", f"faults/room/{number}/")
        jobs.completed(on_pods(jobs, "true", kind="ml.m5.xlarge", InputDataConfig=[channel]))


def test_a_restored_copy_ends_nothing_of_the_originals(jobs, cluster):
    cluster_faults.a_restored_copy_and_its_original_leave_each_other_alone(jobs, on_pods, lambda: there(cluster))


def test_a_server_that_takes_over_has_the_jobs_of_the_lost_one(jobs, cluster, create):
    @contextlib.contextmanager
    def no_room():
        outside = {"limits": {"nvidia.com/gpu": "2"}}
        cluster.add_pod("outside", ["/bin/sleep", "1000"], outside, nodeSelector={"tests/node": "n2"})
        try:
            eventually(lambda: cluster.pod("outside")["status"]["phase"] == "Running")
            yield lambda line: on_pods(jobs, line, kind="ml.g5.xlarge"), "Insufficient nvidia.com/gpu"
        finally:
            cluster.delete_pod("outside")

    cluster_faults.is_taken_over(jobs, create, lambda: there(cluster), no_room)


def test_many_jobs_at_once_run_once_each_and_leave_nothing(jobs, cluster, create, untouched):
    eventually(lambda: cluster.pods() == {})
    with cluster.creations() as made:
        names = cluster_faults.many_at_once(jobs, create, JOBS)
    ran = [it["metadata"]["annotations"]["shoal/arn"].rsplit("/", 1)[1] for it in made]
    assert sorted(ran) == sorted(names)
    with contextlib.suppress(AssertionError):
        eventually(lambda: cluster.objects() == untouched)
    assert cluster.objects() == untouched
