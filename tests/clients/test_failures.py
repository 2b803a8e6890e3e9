"""Failures name the first host that failed, and what it said."""

import pytest


@pytest.mark.targets
@pytest.mark.parametrize(
    "script, expected",
    [
        (
            "echo working; echo 'ValueError: no such column' >&2; exit 3",
            ["AlgorithmError: ValueError: no such column, exit code: 3"],
        ),
        (
            "echo noise >&2; echo 'Bad data: line 7' > /opt/ml/output/failure; exit 1",
            ["AlgorithmError: Bad data: line 7, exit code: 1"],
        ),
        ("kill -9 $$", ["algo-1", "SIGKILL", "exit code: 137"]),
        ("kill -SEGV $$", ["algo-1", "SIGSEGV", "exit code: 139"]),
        ("exit 5", ["AlgorithmError", "exit code: 5"]),
        ("exec /no/such/program", ["not found", "exit code: 127"]),
        ("echo lies > /opt/ml/output/failure; exit 0", None),
    ],
)
def test_the_reason_says_who_and_what(jobs, script, expected):
    name = jobs.script(script, name="fails")
    if expected is None:
        jobs.completed(name)
        return
    reason = jobs.failed(name)
    assert all(text in reason for text in expected), reason


def test_what_python_raises(jobs):
    reason = jobs.failed(
        jobs.python("import sys\nprint('before')\ndef train():\n    raise KeyError('no column age')\ntrain()\n")
    )
    assert "KeyError: 'no column age'" in reason and "in train" in reason and "exit code: 1" in reason, reason


def test_of_a_failure_file_the_beginning_counts(jobs):
    script = "i=0; while [ $i -lt 1000 ]; do echo word$i; i=$((i+1)); done > /opt/ml/output/failure; exit 1"
    reason = jobs.failed(jobs.script(script))
    assert "word0\nword1\n" in reason and "word999" not in reason and 1000 < len(reason) <= 1024


def test_of_stderr_the_end_counts(jobs):
    reason = jobs.failed(jobs.script("i=0; while [ $i -lt 1000 ]; do echo word$i >&2; i=$((i+1)); done; exit 1"))
    assert reason.startswith("AlgorithmError: word999\n") and "\nword0\n" not in reason and 900 < len(reason) <= 1024


def test_a_failure_file_that_is_none(jobs):
    """A directory, or a link to a secret, is no failure file."""
    for trick in ("mkdir /opt/ml/output/failure", "ln -s /etc/passwd /opt/ml/output/failure"):
        reason = jobs.failed(jobs.script(f"{trick}; echo 'the real thing' >&2; exit 4"))
        assert "the real thing" in reason and "root:" not in reason, reason


@pytest.mark.usefixtures("limited")
def test_running_out_of_memory_is_told(jobs):
    reason = jobs.failed(
        jobs.script("head -c 400000000 /dev/zero | tail -n 1 > /dev/null", instance_type="ml.m4.xlarge")
    )
    assert "out of memory" in reason and "algo-1" in reason, reason


@pytest.mark.usefixtures("limited")
def test_the_host_that_ran_out_of_memory_is_named(jobs):
    script = """
    if [ "$(hostname)" = algo-2 ]; then sleep 0.3; head -c 400000000 /dev/zero | tail -n 1 > /dev/null; exit; fi
    sleep 100
    """
    reason = jobs.failed(jobs.script(script, instances=3, instance_type="ml.m4.xlarge"))
    assert "algo-2" in reason and "out of memory" in reason, reason


@pytest.mark.targets
def test_one_host_ends_the_others(jobs):
    script = """
    if [ "$(hostname)" = algo-2 ]; then sleep 0.3; echo 'disk on fire' > /opt/ml/output/failure; exit 4; fi
    trap 'echo told to stop; exit 0' TERM
    echo waiting; sleep 100 & wait
    """
    name = jobs.script(script, instances=3)
    reason = jobs.failed(name)
    assert "algo-2" in reason and "disk on fire" in reason and "exit code: 4" in reason
    for host in ("algo-1", "algo-3"):
        jobs.saying(name, "told to stop", host)


def test_a_killed_rank_is_named_though_others_say_more(jobs):
    """The others lose their peer, complain and exit first in their own words; the culprit is the
    one that was killed.
    """
    script = """
import os, signal, socket, sys, time
host = os.environ["SM_CURRENT_HOST"]
if host == "algo-2":
    server = socket.create_server(("0.0.0.0", 7777))
    peers = [server.accept()[0] for _ in range(2)]
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    try:
        peer = socket.create_connection(("algo-2", 7777))
        break
    except OSError:
        time.sleep(0.05)
try:
    data = peer.recv(1)
except ConnectionError as error:
    data = b""
if not data:
    sys.exit("ConnectionError: my peer is gone")
"""
    reason = jobs.failed(jobs.python(script, instances=3))
    assert "algo-2" in reason and "SIGKILL" in reason, reason


@pytest.mark.parametrize("entrypoint, code", [("no-such-program", "127"), ("/etc/hostname", "126"), ("/usr", "126")])
def test_a_program_that_is_no_program(jobs, entrypoint, code):
    request = jobs.request("none")
    algorithm = {"TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": [entrypoint]}
    jobs.sagemaker.create_training_job(**request, AlgorithmSpecification=algorithm)
    reason = jobs.failed(request["TrainingJobName"])
    assert entrypoint in reason and f"exit code: {code}" in reason, reason


def test_a_failed_job_keeps_its_metrics_and_logs(jobs):
    name = jobs.script("echo loss=0.5; exit 1", metrics=[("loss", r"loss=(\S+)")])
    jobs.failed(name)
    assert jobs.metrics(name) == {"loss": 0.5} and jobs.lines(name) == ["loss=0.5"]
    it = jobs.describe(name)
    assert (
        it["SecondaryStatusTransitions"][-1]["Status"] == "Failed" and it["TrainingEndTime"] >= it["TrainingStartTime"]
    )
