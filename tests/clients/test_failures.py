"""Failures name the first host that failed, and what it said."""

import pytest


@pytest.mark.parametrize(
    "script, expected",
    [
        ("echo working; echo 'ValueError: no such column' >&2; exit 3", ["AlgorithmError", "algo-1", "ValueError: no such column", "exit code: 3"]),
        ("echo noise >&2; echo 'Bad data: line 7' > /opt/ml/output/failure; exit 1", ["AlgorithmError", "Bad data: line 7", "exit code: 1"]),
        ("kill -9 $$", ["algo-1", "SIGKILL", "exit code: 137"]),
        ("kill -SEGV $$", ["algo-1", "SIGSEGV", "exit code: 139"]),
        ("exit 5", ["AlgorithmError", "exit code: 5"]),
        ("exec /no/such/program", ["algo-1", "not found", "exit code: 127"]),
    ],
)
def test_the_reason_says_who_and_what(jobs, script, expected):
    reason = jobs.failed(jobs.script(script, name="fails"))
    assert all(text in reason for text in expected), reason


def test_reasons_are_not_too_long(jobs):
    reason = jobs.failed(jobs.script("yes longwords | head -c 5000 > /opt/ml/output/failure; exit 1"))
    assert 900 < len(reason) <= 1024


def test_running_out_of_memory_is_told(jobs):
    reason = jobs.failed(jobs.script("head -c 400000000 /dev/zero | tail -n 1 > /dev/null", instance_type="ml.m4.xlarge"))
    assert "out of memory" in reason and "algo-1" in reason, reason


def test_one_host_ends_the_others(jobs):
    script = """
    if [ "$(hostname)" = algo-2 ]; then sleep 0.3; echo 'disk on fire' > /opt/ml/output/failure; exit 4; fi
    trap 'echo told to stop; exit 0' TERM
    echo waiting; sleep 100 & wait
    """
    name = jobs.script(script, instances=3)
    reason = jobs.failed(name)
    assert "algo-2" in reason and "disk on fire" in reason and "exit code: 4" in reason
    assert "told to stop" in jobs.lines(name, "algo-1") and "told to stop" in jobs.lines(name, "algo-3")


def test_a_program_that_is_no_program(jobs):
    request = jobs.request("none")
    algorithm = {"TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["no-such-program"]}
    jobs.sagemaker.create_training_job(**request, AlgorithmSpecification=algorithm)
    assert "no-such-program" in jobs.failed(request["TrainingJobName"])
