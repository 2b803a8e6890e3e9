"""`horovodrun` and `horovod.run`: real processes, whose programs need no framework."""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import horovod
from horovod.runner import hosts, launch, settings

PACKAGES = str(Path(horovod.__file__).parents[1])
TELL = "import os; print('rank', *(os.environ['HOROVOD_' + it] for it in ('RANK', 'SIZE', 'LOCAL_RANK', 'LOCAL_SIZE', 'CROSS_RANK', 'CROSS_SIZE')))"


def horovodrun(*arguments: str, timeout: float = 60, **more: str) -> subprocess.CompletedProcess:
    """The command, as a shell would start it."""
    command = [sys.executable, "-m", "horovod.runner.launch", *arguments]
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": PACKAGES, **more}, capture_output=True, text=True, timeout=timeout
    )


def test_ranks_know_who_they_are(tmp_path):
    told = horovodrun("-np", "2", "--output-filename", str(tmp_path / "out"), sys.executable, "-c", TELL)
    assert told.returncode == 0, told.stderr
    assert sorted(told.stdout.splitlines()) == ["[0]<stdout>:rank 0 2 0 2 0 1", "[1]<stdout>:rank 1 2 1 2 0 1"]
    assert (tmp_path / "out" / "rank.1" / "stdout").read_text() == "rank 1 2 1 2 0 1\n"


def test_options_become_variables():
    tell = "import os; print(sorted(it for it in os.environ.items() if it[0] in ('HOROVOD_FUSION_THRESHOLD', 'HOROVOD_CYCLE_TIME', 'HOROVOD_STALL_CHECK_TIME_SECONDS')))"
    options = [
        "--fusion-threshold-mb",
        "2",
        "--cycle-time-ms",
        "0.5",
        "--stall-check-warning-time-seconds",
        "7",
        "--gloo",
    ]
    told = horovodrun("-np", "1", *options, sys.executable, "-c", tell)
    wanted = [
        ("HOROVOD_CYCLE_TIME", "0.5"),
        ("HOROVOD_FUSION_THRESHOLD", str(2 << 20)),
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", "7"),
    ]
    assert told.stdout == f"[0]<stdout>:{wanted}\n"


def test_a_failure_ends_the_others():
    program = "import os, sys, time; sys.exit(7) if os.environ['HOROVOD_RANK'] == '1' else time.sleep(60)"
    began = time.monotonic()
    told = horovodrun("-np", "2", sys.executable, "-c", program)
    assert told.returncode == 7 and time.monotonic() - began < 20
    assert "rank 1 on localhost failed with exit code 7" in told.stderr


def test_what_cannot_be_started_is_told(tmp_path):
    (tmp_path / "train.py").touch()
    (tmp_path / "run").touch()
    (tmp_path / "hosts").write_text("localhost slots=two\n")
    for arguments, sentence in (
        (["-np", "3", "-H", "localhost:2", "true"], "Requested more processes (3) than there are available slots (2)"),
        (["-np", "1", "-H", "localhost:x", "true"], "give it as name:slots"),
        (["-np", "2", "-H", "localhost:1,elsewhere.invalid:1", "true"], "there is no ssh"),
        (["-np", "1", "--jsrun", "true"], "--jsrun is not offered"),
        (["-np", "1", "/no/such/program"], "No such file"),
        (["-np", "1", f"{tmp_path}/train.py", "--lr", "1"], f"started by python: python {tmp_path}/train.py --lr 1"),
        (["-np", "1", f"{tmp_path}/run"], f"chmod +x {tmp_path}/run"),
        (["-np", "1", "--hostfile", f"{tmp_path}/hosts", "true"], "give slots as a number"),
        (["-np", "2", "--min-np", "3", "-H", "localhost:3", "true"], "-np 2 is less than --min-np 3"),
        (["-np", "1"], "give the program to start"),
    ):
        told = horovodrun(*arguments, PATH="/nowhere")
        assert told.returncode == 2 and sentence in told.stderr, told.stderr


def test_version_and_build():
    assert horovodrun("--version").stdout.strip() == horovod.__version__ == "0.28.1"
    assert "[X] Gloo" in horovodrun("--check-build").stdout


def test_ssh_starts_ranks_of_other_hosts(tmp_path):
    # In the place of ssh: what it would start on the other host, here.
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/bash\nwhile [ "$1" != bash ]; do shift; done\nexec "$@"\n')
    ssh.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    told = horovodrun("-np", "2", "-H", "localhost:1,elsewhere.invalid:1", sys.executable, "-c", TELL, PATH=path)
    assert sorted(told.stdout.splitlines()) == ["[0]<stdout>:rank 0 2 0 1 0 2", "[1]<stdout>:rank 1 2 0 1 1 2"], (
        told.stderr
    )
    program = "import os, sys, time; sys.exit(3) if os.environ['HOROVOD_RANK'] == '0' else time.sleep(50)"
    began = time.monotonic()
    told = horovodrun("-np", "2", "-H", "localhost:1,elsewhere.invalid:1", sys.executable, "-c", program, PATH=path)
    assert told.returncode == 3 and time.monotonic() - began < 20


def test_places():
    found = hosts.get_host_assignments(hosts.parse_hosts("a:2,b:1,c:2"), 5)
    assert [(it.hostname, it.local_rank, it.local_size, it.cross_rank, it.cross_size) for it in found] == [
        ("a", 0, 2, 0, 3),
        ("a", 1, 2, 0, 2),
        ("b", 0, 1, 1, 3),
        ("c", 0, 2, 2, 3),
        ("c", 1, 2, 1, 2),
    ]


def test_files(tmp_path):
    (tmp_path / "hosts").write_text("a slots=2\n# nobody\nb slots = 3\nc:4\n")
    assert hosts.parse_host_file(str(tmp_path / "hosts")) == [("a", 2), ("b", 3), ("c", 4)]
    (tmp_path / "settings").write_text(
        "params:\n  fusion_threshold_mb: 32\n  cycle_time_ms: 4\nstall_check:\n  enabled: false\ntimeline:\n  filename: t.json\n"
    )
    options = launch.parser().parse_args(["--cycle-time-ms", "2", "true"])
    if importlib.util.find_spec("yaml") is None:
        with pytest.raises(SystemExit, match="needs PyYAML"):
            settings.read_file(str(tmp_path / "settings"), options)
        return
    settings.read_file(str(tmp_path / "settings"), options)
    found = settings.to_environment(options)
    assert found == {
        "HOROVOD_FUSION_THRESHOLD": str(32 << 20),
        "HOROVOD_CYCLE_TIME": "2.0",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_TIMELINE": "t.json",
    }


def _place(add, *, fails=None):
    rank = int(os.environ["HOROVOD_RANK"])
    if rank == fails:
        raise ValueError("this one fails")
    return rank + add


def test_run(monkeypatch):
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([PACKAGES, str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    )
    assert horovod.run(_place, args=(10,), num_proc=2) == [10, 11]
    with pytest.raises(RuntimeError, match="this one fails"):
        horovod.run(_place, args=(10,), kwargs={"fails": 1}, num_proc=2)
    with pytest.raises(ValueError, match="only allow one"):
        horovod.run(_place, hosts="localhost", hostfile="x")
