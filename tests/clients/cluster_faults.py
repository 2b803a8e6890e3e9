"""Faults that jobs on a cluster survive, or fail of with a reason, whatever schedules there: what
Slurm's tests and Kubernetes' have in common. `create` makes a job there of a line of shell and
members of its request, and gives its name.

`SHOAL_SOAK` makes them as long and as many as issue 17 has them: a minute, 200 jobs.
"""

import concurrent.futures
import os
import signal
import time

from house import House, eventually
from jobs import GROUP, Jobs

IS_SOAK = "SHOAL_SOAK" in os.environ
CUT_S = 60 if IS_SOAK else 5
WAITS = "echo ready; while true; do sleep 0.1; done"
RETRIED = {"RetryStrategy": {"MaximumRetryAttempts": 1}}


def steps(jobs, name):
    return [(it["Status"], it["StatusMessage"]) for it in jobs.describe(name)["SecondaryStatusTransitions"]]


def message(jobs, name):
    return steps(jobs, name)[-1][1]


def attempts(jobs, name):
    """How many had a log."""
    streams = jobs.logs_client.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")
    return len(streams["logStreams"])


def stop(jobs, name):
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"


def ends_at_its_second_attempt(jobs, create, prefix):
    """A job that runs until it is lost, and is then tried once more."""
    again = "if [ -e /opt/ml/checkpoints/again ]; then exit 0; fi; echo x > /opt/ml/checkpoints/again"
    checkpoints = {"CheckpointConfig": {"S3Uri": f"s3://tests/{prefix}"}}
    name = create(f"echo ready; {again}; sleep 1000", **RETRIED, **checkpoints)
    jobs.saying(name, "ready")
    eventually(lambda: jobs.s3.list_objects_v2(Bucket="tests", Prefix=prefix).get("KeyCount"))
    return name


def a_cut_loses_no_line_and_doubles_none(jobs, create, cut_off):
    """`cut_off` keeps a running job's agent from its server for as long as its context."""
    count = 5 * CUT_S + 20
    name = create(f"for i in $(seq {count}); do echo line $i; sleep 0.2; done")
    jobs.saying(name, "line 3")
    with cut_off():
        before = len(jobs.lines(name))
        time.sleep(CUT_S)
        seen = len(jobs.lines(name)) - before
        # What was on its way.
        assert seen < 2.5 * CUT_S, f"it is not cut: {seen} lines"
        assert jobs.describe(name)["TrainingJobStatus"] == "InProgress"
    jobs.completed(name)
    assert jobs.lines(name) == [f"line {number}" for number in range(1, count + 1)]
    assert attempts(jobs, name) == 1


def an_input_does_not_fit(jobs, create, words, megabytes=24):
    """`create` makes jobs on a node with a disk of 8 MiB; the reason has all of the words. What has
    come of the input leaves room for others.
    """

    def of(megabytes):
        prefix = f"faults/{megabytes}/"
        jobs.put(f"{prefix}object", os.urandom(megabytes << 20))
        return create("true", InputDataConfig=[jobs.channel("data", prefix)])

    reason = jobs.failed(of(megabytes))
    missing = [word for word in ("No space left on device", *words) if word not in reason]
    assert not missing, (missing, reason)
    jobs.completed(of(3))


def many_at_once(jobs, create, count):
    """Names of jobs that have all run, once each."""
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        names = list(pool.map(lambda number: create(f"echo job {number}"), range(count)))
    for number, name in enumerate(names):
        jobs.completed(name)
        assert jobs.lines(name) == [f"job {number}"]
        assert attempts(jobs, name) == 1
    return names


def a_restored_copy_and_its_original_leave_each_other_alone(jobs, create_by, there):
    """`create_by` makes a job by the clients of a server; `there` are the cluster's own jobs."""
    running = create_by(jobs, WAITS)
    jobs.saying(running, "ready")
    target, data = jobs.house.root / "backup", jobs.house.root / "copy"
    jobs.house.shoal("backup", target)
    jobs.house.shoal("restore", target, "--data-dir", data)
    refused = jobs.house.shoal("restore", target, "--data-dir", jobs.house.root / "second", "--take-over", check=False)
    assert refused.returncode == 1 and "is still here" in refused.stderr, refused
    before = there()
    copy = House("--silence-s", "1", data=data)
    try:
        assert "restored from a backup" in Jobs(copy).failed(running)
        # What it had started, too, is ended when it ends.
        time.sleep(2)
        assert there() == before
    finally:
        copy.stop()
    # Nor does the original, which ends what it does not know when it starts.
    copy = House(data=data)
    try:
        of_copy = create_by(Jobs(copy), WAITS)
        Jobs(copy).saying(of_copy, "ready")
        both = there()
        jobs.house.stop()
        jobs.house.start()
        jobs.connect()
        time.sleep(1)
        assert there() == both and len(both) == 2, (there(), both)
        stop(Jobs(copy), of_copy)
        # What a server that has ended has not cleared is there until its next start.
        eventually(lambda: there() == before)
    finally:
        copy.stop()
    jobs.until(running, "Training")
    stop(jobs, running)


def is_taken_over(jobs, create, there, no_room):
    """Another server takes the place of one that is lost, with its backup alone. `no_room` holds what
    a job of `create` needs for as long as its context; `there` are the cluster's own jobs.
    """
    house = jobs.house
    running = create("echo ready; until [ -e /tmp/over ]; do sleep 0.1; done; sleep 3; echo continued")
    jobs.saying(running, "ready")
    with no_room() as (waits, why):
        queued = waits("echo its turn")
        eventually(lambda: why in message(jobs, queued))
        submitted = set(there())
        target = house.root / "taken-over"
        house.shoal("backup", target)
        house.stop(signal.SIGKILL)
        house.data.rename(house.root / "lost")
        house.shoal("restore", target, "--data-dir", house.data, "--take-over")
        house.start()
        jobs.connect()
        # Once its agent is back.
        touch = ["jobs", "exec", running, "--rank", "0", "--", "/bin/touch", "/tmp/over"]
        eventually(lambda: house.shoal(*touch, check=False).returncode == 0)
        jobs.completed(running)
        assert jobs.lines(running) == ["ready", "continued"]
        assert set(there()) <= submitted, "none was submitted again"
        eventually(lambda: why in message(jobs, queued))
    jobs.completed(queued)
    assert jobs.lines(queued) == ["its turn"]
