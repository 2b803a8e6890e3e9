"""A training program that tries to get out: at files, networks, processes and the kernel, as
root's and as an ordinary user's.
"""

import ctypes
import itertools
import os
import pathlib
import signal
import socket
import subprocess
import tempfile

import pytest
import traces
from attacks import ATTACKS, BEFORE
from jobs import Jobs
from programs import S3

KINDS = {"as we are": {}, "ordinary user": {"ordinary": True}}
SHM_KEY = 0x5A0A1
VICTIM = """
import os, socket, time
open("/opt/ml/model/secret", "w").write("secret")
tcp = socket.create_server(("0.0.0.0", 29500))
unix = socket.socket(socket.AF_UNIX)
unix.bind("\\0victim"); unix.listen()
print("ready", flush=True)
while True: time.sleep(0.1)
"""
# Each attack is one piece that is run; what it comes to is said in one line.
AFTER = """
def attempt(name, piece):
    *statements, last = piece.strip().split("\\n")
    try:
        scope = dict(globals())
        exec("\\n".join(statements), scope)
        result = eval(last, scope)
    except (OSError, subprocess.CalledProcessError, UnicodeError) as error:
        result = False
    # Many calls give nothing back when they have done what they were asked for.
    reached = result is None or bool(result)
    print(f"{'REACHED ' + repr(result)[:200] if reached else 'refused'}: {name}", flush=True)

for name, piece in PIECES.items():
    attempt(name, piece)
"""


@pytest.fixture(scope="module", params=KINDS)
def jobs(request, make_house):
    return Jobs(make_house("--grace-s", "1", **KINDS[request.param]))


@pytest.fixture(scope="module")
def targets(jobs):
    """A second job, and things of the machine that an instance has no business with."""
    house = jobs.house
    jobs.put("attacks/secret.txt", "secret")
    victim = jobs.python(VICTIM, instance_type="ml.t3.medium", name="victim")
    jobs.saying(victim, "ready")
    (pid,) = [pid for pid in traces.programs(house, "/opt/ml/input/data/code/run.sh")]
    (run,) = (house.data / "runs").iterdir()
    assert (run / "algo-1/ml/model/secret").read_text() == "secret"
    with (
        tempfile.NamedTemporaryFile(mode="w") as root_file,
        tempfile.NamedTemporaryFile(mode="w") as open_file,
        tempfile.NamedTemporaryFile(mode="w", dir="/dev/shm") as shm,
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        for file in (open_file, shm):
            pathlib.Path(file.name).write_text("secret")
            os.chmod(file.name, 0o666)
        abstract.bind(f"\0shoal-test-{os.getpid()}")
        abstract.listen()
        segment = ctypes.CDLL(None).shmget(SHM_KEY, 4096, 0o1666)
        yield {
            "data": str(house.data),
            "run": str(run),
            "root_file": root_file.name,
            "open_file": open_file.name,
            "shm": os.path.basename(shm.name),
            "shm_key": SHM_KEY,
            "port": listener.getsockname()[1],
            "abstract": f"shoal-test-{os.getpid()}",
            "server_port": int(house.variables_for_clients()["AWS_ENDPOINT_URL"].rsplit(":", 1)[1]),
            "server_pid": house.pid,
            "victim_pid": pid,
            "victim_job": victim,
        }
        ctypes.CDLL(None).shmctl(segment, 0, None)
    jobs.sagemaker.stop_training_job(TrainingJobName=victim)
    jobs.wait(victim)


@pytest.mark.parametrize("kind", ATTACKS)
def test_nothing_is_reached(jobs, targets, kind):
    pieces = ATTACKS[kind]
    name = jobs.python(f"{S3}{BEFORE}\nT = {targets!r}\nPIECES = {pieces!r}\n{AFTER}", instance_type="ml.t3.medium")
    jobs.completed(name)
    assert jobs.lines(name) == [f"refused: {attack}" for attack in pieces]
    assert jobs.describe(targets["victim_job"])["SecondaryStatus"] == "Training"


def test_the_attacks_are_real(jobs, targets, tmp_path):
    """Outside of an instance, as the server's own user, the same pieces reach their targets:
    files, ports, processes.
    """
    real = {
        "files": [
            "the server's keys",
            "the server's database",
            "the data directory",
            "another job's file",
            "shared memory of the machine",
        ],
        "network": ["a port of the machine's loopback", "the server's own port", "an abstract socket of the machine"],
        "processes": ["the server", "another job's program", "others in /proc", "shared memory by key"],
    }
    pieces = {name: ATTACKS[kind][name] for kind, names in real.items() for name in names}
    program = tmp_path / "attack.py"
    program.write_text(f"{BEFORE}\nT = {targets!r}\nPIECES = {pieces!r}\n{AFTER}")
    tmp_path.chmod(0o755)
    # Those that pytest made for root alone: one more where tests run side by side.
    for directory in itertools.takewhile(lambda it: it != pathlib.Path(tempfile.gettempdir()), tmp_path.parents):
        directory.chmod(0o755)
    said = subprocess.run(
        [*jobs.house.prefix, "/usr/bin/python3", program], capture_output=True, text=True, check=True
    ).stdout
    assert all(line.startswith("REACHED") for line in said.splitlines()) and len(said.splitlines()) == len(pieces), said


def test_the_first_process_cannot_be_hurt(jobs):
    signals = [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT]
    each = f"for number in {[int(number) for number in signals]}:\n    os.kill(1, number)"
    text = f"import os, time\n{each}\ntime.sleep(0.5)\nprint('all is well')"
    name = jobs.python(text)
    jobs.completed(name)
    assert jobs.lines(name) == ["all is well"]
