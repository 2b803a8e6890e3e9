"""A full disk: a clear error, nothing acknowledged lost, and all goes on when there is room
again, without a restart.
"""

import contextlib
import os
import signal
import subprocess
import time

import pytest
import records
from botocore.config import Config
from botocore.exceptions import ClientError
from house import BUCKET, eventually, free_port
from jobs import Jobs
from tunings import LOSSES, Tunings

# Fills a disk.
pytestmark = pytest.mark.alone

ONCE = Config(retries={"total_max_attempts": 1})
WAITS = "trap 'exit 0' TERM; echo ready; while true; do sleep 0.1; done"


class Disk:
    """A small file system, and something on it that can fill it."""

    def __init__(self, path):
        self.path, self.ballast = path, path / "ballast"

    @contextlib.contextmanager
    def full(self):
        self.fill()
        try:
            yield
        finally:
            self.ballast.unlink()

    def fill(self):
        with open(self.ballast, "ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))


@pytest.fixture
def disk(tmp_path):
    if (
        os.getuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", tmp_path], check=False).returncode != 0
    ):
        pytest.skip("needs the right to mount a small disk")
    yield Disk(tmp_path)
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


@pytest.fixture
def jobs(disk, new_house):
    return Jobs(new_house("--instances", "1", "--grace-s", "1", data=disk.path / "data", port=free_port()))


def refused(call):
    with pytest.raises(ClientError) as error:
        call()
    answer = error.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"], answer["Error"]["Message"]


def let_go(jobs, name):
    """Lets a program continue that waits for this file. It may end before the command has its
    answer.
    """
    jobs.house.shoal("jobs", "exec", name, "--", "touch", "/dev/shm/go", check=False)


def test_creating_jobs(jobs, disk):
    first = jobs.command(WAITS)
    jobs.saying(first, "ready")
    once = jobs.house.client("sagemaker", config=ONCE)
    request = {
        "AlgorithmSpecification": {
            "TrainingImage": "shoal/host",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/true"],
        }
    }
    acknowledged = [first]

    def create_until_refused():
        for _ in range(1000):
            wanted = jobs.request("full", **request)
            # Requests of some size, so that it does not take thousands of them.
            once.create_training_job(**wanted, Environment={f"PADDING_{n}": "x" * 500 for n in range(40)})
            acknowledged.append(wanted["TrainingJobName"])

    with disk.full():
        status, code, message = refused(create_until_refused)
        assert (status, code) == (503, "ServiceUnavailable") and "no space left" in message, (status, code, message)
        for name in acknowledged:
            assert jobs.describe(name)["TrainingJobName"] == name
        # A server that is killed now starts all the same.
        jobs.house.stop(signal.SIGKILL)
        jobs.house.start()
        for name in acknowledged:
            assert jobs.describe(name)["TrainingJobName"] == name
        # It has tidied up, which made some room.
        disk.fill()
        assert refused(create_until_refused)[0] == 503
        # What waits goes on waiting when its turn has come, until there is room for it.
        jobs.sagemaker.stop_training_job(TrainingJobName=first)
        eventually(lambda: "is not launched yet: no space left" in jobs.house.log.read_text())
    last = jobs.command("echo there is room again")
    for name in acknowledged[1:]:
        jobs.completed(name)
    jobs.completed(last)
    listed = [
        job["TrainingJobName"]
        for page in jobs.sagemaker.get_paginator("list_training_jobs").paginate()
        for job in page["TrainingJobSummaries"]
    ]
    assert sorted(listed) == sorted([*acknowledged, last])


def test_stopping_a_launch_that_waits_for_room(jobs, disk):
    """It ends at once, and what it held is the next one's, which waits likewise."""
    first = jobs.command(WAITS)
    jobs.saying(first, "ready")
    second, third = jobs.command("echo never"), jobs.command("echo there is room again")
    waits = lambda name: f"training job {name} is not launched yet: no space left" in jobs.house.log.read_text()
    with disk.full():
        jobs.sagemaker.stop_training_job(TrainingJobName=first)
        eventually(lambda: waits(second))
        jobs.sagemaker.stop_training_job(TrainingJobName=second)
        assert jobs.describe(second)["TrainingJobStatus"] == "Stopped"
        eventually(lambda: waits(third))
    jobs.completed(third)
    assert jobs.describe(second)["TrainingJobStatus"] == "Stopped"


def test_logging(jobs, disk):
    """More than the reserve holds: the program waits, and goes on when there is room again."""
    line = """awk 'BEGIN {for (i = 1; i <= 4000; i++) {printf "line %d %4000d\\n", i, i; if (i % 10 == 0) print "loss=" i ";"}}'"""
    name = jobs.command(f"echo ready; sleep 0.5; {line}; echo end", metrics=[("loss", r"loss=(\d+);")])
    jobs.saying(name, "ready")
    with disk.full():
        eventually(lambda: "waits for the disk: no space left" in jobs.house.log.read_text())
        assert jobs.describe(name)["SecondaryStatus"] == "Training"
    jobs.completed(name)
    numbers = [line.split()[1] for line in jobs.lines(name) if line.startswith("line ")]
    assert numbers == [str(i) for i in range(1, 4001)] and jobs.lines(name)[-1] == "end"
    assert records.points(jobs.house, name, "loss") == [float(i) for i in range(10, 4001, 10)]
    assert "takes what algo-1 says again" in jobs.house.log.read_text()


def test_tuning(disk, new_house):
    """What trials print waits for the disk; no value is lost, no trial is run twice, and the search
    goes on when there is room again.

    They store no model: a script that itself finds the disk full fails, as the test below has it.
    """
    jobs = Jobs(new_house("--instances", "2", "--grace-s", "1", data=disk.path / "data", port=free_port()))
    tunings = Tunings(jobs)
    name = tunings.create(
        tunings.curve(epochs=30, pause=0.05, program=LOSSES), strategy="Bayesian", trials=6, parallel=2
    )
    first = eventually(lambda: tunings.trials(name))[0]["TrainingJobName"]
    jobs.saying(first, "epoch=3")
    with disk.full():
        eventually(lambda: "no space left" in jobs.house.log.read_text())
        time.sleep(3)
        assert tunings.describe(name)["HyperParameterTuningJobStatus"] == "InProgress"
    it = tunings.completed(name)
    assert it["TrainingJobStatusCounters"]["Completed"] == 6, it["TrainingJobStatusCounters"]
    trials = tunings.trials(name)
    assert len({trial["TrainingJobName"] for trial in trials}) == 6
    for trial in trials:
        epochs = [
            int(line.split(";")[0].removeprefix("epoch="))
            for line in jobs.lines(trial["TrainingJobName"])
            if line.startswith("epoch=")
        ]
        assert epochs == list(range(1, 31)), (trial["TrainingJobName"], epochs)


def test_uploading_a_model(jobs):
    """A program that finds the disk of all jobs full has not failed by itself."""
    name = jobs.command("head -c 80000000 /dev/urandom > $SM_MODEL_DIR/m")
    reason = jobs.failed(name)
    assert reason.startswith("InternalServerError") and "No space left on device" in reason, reason
    jobs.completed(fits := jobs.command("echo small > $SM_MODEL_DIR/m"))
    assert jobs.artifact(fits) == {"m": b"small\n"}


def test_a_model_waits_for_room(jobs, disk):
    """The program has ended well: its model is stored when there is room."""
    name = jobs.command(
        "head -c 8000000 /dev/urandom > $SM_MODEL_DIR/m; echo ready; while [ ! -e /dev/shm/go ]; do sleep 0.1; done"
    )
    jobs.saying(name, "ready")
    with disk.full():
        let_go(jobs, name)
        eventually(lambda: "wait for the disk" in jobs.house.log.read_text())
        assert jobs.describe(name)["TrainingJobStatus"] == "InProgress"
    jobs.completed(name)
    assert len(jobs.artifact(name)["m"]) == 8_000_000


def test_stopping_a_job_whose_model_waits_for_room(jobs, disk):
    """It waits no longer: the model is lost, and the instance is free for the next job."""
    name = jobs.command(
        "head -c 8000000 /dev/urandom > $SM_MODEL_DIR/m; echo ready; while [ ! -e /dev/shm/go ]; do sleep 0.1; done"
    )
    jobs.saying(name, "ready")
    with disk.full():
        let_go(jobs, name)
        eventually(lambda: "wait for the disk" in jobs.house.log.read_text())
        jobs.sagemaker.stop_training_job(TrainingJobName=name)
        assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    assert (
        f"training job {name}: no space is left on the server's disk for the artifacts of algo-1"
        in jobs.house.log.read_text()
    )
    jobs.completed(jobs.command("echo there is room again"))


def test_stopping_a_job_whose_model_waits_to_be_stored(disk, new_house):
    """All of it has come to the server, and there is no room for the archive of both instances."""
    jobs = Jobs(new_house("--instances", "2", "--grace-s", "1", data=disk.path / "data", port=free_port()))
    first, second = (
        "echo ready; while [ ! -e /dev/shm/go ]; do sleep 0.1; done",
        "head -c 8000000 /dev/urandom > $SM_MODEL_DIR/m",
    )
    name = jobs.command(f"if [ $(hostname) = algo-1 ]; then {first}; else {second}; fi", instances=2)
    jobs.saying(name, "ready")
    received = lambda: sum(path.stat().st_size for path in (jobs.house.data / "runs").glob("*/parts-2-*"))
    eventually(lambda: received() > 8_000_000)
    with disk.full():
        let_go(jobs, name)
        eventually(lambda: "its artifacts are not stored yet: no space left" in jobs.house.log.read_text())
        jobs.sagemaker.stop_training_job(TrainingJobName=name)
        reason = jobs.failed(name)
    assert reason.startswith("InternalServerError") and "No space left" in reason and str(disk.path) not in reason, (
        reason
    )
    jobs.completed(jobs.command("echo there is room again"))


def test_a_script_that_finds_the_disk_full_is_tried_again(jobs, disk):
    """RetryStrategy: the disk of all jobs is not the script's own affair."""
    name = jobs.command(
        "echo ready; while [ ! -e /dev/shm/go ]; do sleep 0.1; done; head -c 8000000 /dev/urandom > $SM_MODEL_DIR/m",
        RetryStrategy={"MaximumRetryAttempts": 2},
    )
    go = lambda: jobs.house.shoal("jobs", "exec", name, "--", "touch", "/dev/shm/go", check=False).returncode == 0
    jobs.saying(name, "ready")
    messages = lambda: [step["StatusMessage"] for step in jobs.describe(name)["SecondaryStatusTransitions"]]
    with disk.full():
        assert go()
        [message] = eventually(lambda: [message for message in messages() if "retry 1 of 2" in message])
        assert "InternalServerError" in message and "No space left on device" in message
    # The next attempt waits for its own word.
    jobs.until(name, "Training")
    eventually(go)
    jobs.completed(name)
    assert len(jobs.artifact(name)["m"]) == 8_000_000


def test_lines_until_the_disk_is_full(jobs, disk):
    """Lines never use the reserve: stopping, deleting, storing facts and a restart work, and
    there is room for others afterwards.
    """
    s3 = jobs.s3
    s3.put_object(Bucket=BUCKET, Key="disk/small", Body=b"x" * 1000)
    ended = jobs.completed(jobs.command("echo short"))["TrainingJobName"]
    noisy = jobs.command("trap 'exit 0' TERM; while true; do head -c 100000 /dev/urandom | base64 -w 900; done")
    eventually(lambda: "waits for the disk: no space left" in jobs.house.log.read_text(), 60)
    disk.fill()
    s3.delete_object(Bucket=BUCKET, Key="disk/small")
    jobs.sagemaker.delete_training_job(TrainingJobName=ended)
    jobs.sagemaker.stop_training_job(TrainingJobName=noisy)
    stopped = jobs.wait(noisy)
    assert stopped["TrainingJobStatus"] == "Stopped", stopped.get("FailureReason")
    jobs.house.stop(signal.SIGKILL)
    jobs.house.start()
    assert jobs.describe(noisy)["TrainingJobStatus"] == "Stopped"
    disk.ballast.unlink(missing_ok=True)
    jobs.sagemaker.delete_training_job(TrainingJobName=noisy)
    jobs.completed(jobs.command("echo there is room again"))


def test_storing_objects(jobs, disk):
    # With its retries: who is refused before all is sent may find the connection closed at the next
    # request. 507 is not tried again.
    s3 = jobs.s3
    stored = []

    def put_until_refused():
        for number in range(100):
            s3.put_object(Bucket=BUCKET, Key=f"disk/{number}", Body=bytes([number]) * 1_000_000)
            stored.append(f"disk/{number}")

    assert refused(put_until_refused)[:2] == (507, "InsufficientStorage")
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="disk/parts")["UploadId"]
    # Zeros would find room.
    part = {"Bucket": BUCKET, "Key": "disk/parts", "UploadId": upload, "PartNumber": 1}
    assert refused(lambda: s3.upload_part(**part, Body=b"p" * (5 << 20)))[:2] == (507, "InsufficientStorage")
    with disk.full():
        assert refused(lambda: s3.put_object(Bucket=BUCKET, Key="disk/none", Body=b"x"))[:2] == (
            507,
            "InsufficientStorage",
        )
        assert [item["Key"] for item in s3.list_objects_v2(Bucket=BUCKET, Prefix="disk/")["Contents"]] == sorted(stored)
        for key in stored:
            assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == bytes([int(key[5:])]) * 1_000_000
        # Who is told that there is no room must be able to make some.
        s3.delete_object(Bucket=BUCKET, Key=stored[0])
    s3.put_object(Bucket=BUCKET, Key="disk/again", Body=b"x" * 100_000)
    done = s3.upload_part(**part, Body=b"part")
    parts = {"Parts": [{"PartNumber": 1, "ETag": done["ETag"]}]}
    s3.complete_multipart_upload(Bucket=BUCKET, Key="disk/parts", UploadId=upload, MultipartUpload=parts)
    assert s3.get_object(Bucket=BUCKET, Key="disk/parts")["Body"].read() == b"part"
