"""A disk that does not take what is written (fsync fails with EIO, by strace): nothing of that
is acknowledged, and what was is there afterwards.
"""

import contextlib
import hashlib
import shutil
import signal
import subprocess

import boto3
import pytest
import traces
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from house import BUCKET, eventually, free_port
from jobs import Jobs

ONCE = Config(retries={"total_max_attempts": 1})


@pytest.fixture
def jobs(new_house):
    if not shutil.which("strace") or subprocess.run(["strace", "-o", "/dev/null", "true"], check=False).returncode != 0:
        pytest.skip("needs strace")
    return Jobs(new_house(port=free_port()))


@contextlib.contextmanager
def failing(house, *files, calls="fsync,fdatasync"):
    """Every fsync of these files by the server fails; of all files if none is named."""
    paths = [word for file in files for word in ("-P", str(file))]
    inject = ["-e", f"trace={calls}", "-e", f"inject={calls}:error=EIO"]
    log = house.root / "strace.log"
    strace = subprocess.Popen(
        ["strace", "-f", "-p", str(house.pid), *paths, *inject, "-o", str(log)], stderr=subprocess.PIPE, text=True
    )
    try:
        attached = strace.stderr.readline()
        assert "attached" in attached, attached
        yield log
    finally:
        strace.send_signal(signal.SIGINT)
        strace.wait(30)
        strace.stderr.close()
    assert "EIO" in log.read_text(), "no fsync was met: the test proves nothing"


def ends_and_says_why(house, file):
    """The server ends by itself, with an error; the next one takes the directory."""
    code, house.process = house.process.wait(30), None
    said = house.log.read_text()
    assert code == 1 and "the disk did not take what was written" in said and file in said, (code, said)
    house.start()


def test_a_request_that_is_not_durable_is_not_acknowledged(jobs):
    house = jobs.house
    before = jobs.script("echo before")
    jobs.completed(before)
    running = jobs.command("trap 'exit 0' TERM; echo ready; while true; do sleep 0.1; done")
    jobs.saying(running, "ready")
    ranks = traces.identities(traces.ranks(house))
    request = jobs.request(
        "lost",
        AlgorithmSpecification={
            "TrainingImage": "shoal/host",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/true"],
        },
    )
    with failing(house, house.data / "shoal.db-wal"):
        with pytest.raises((ClientError, BotoCoreError)) as refused:
            house.client("sagemaker", config=ONCE).create_training_job(**request)
        if isinstance(refused.value, ClientError):
            assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] >= 500, refused.value
        ends_and_says_why(house, "shoal.db")
    assert jobs.describe(before)["TrainingJobStatus"] == "Completed" and jobs.lines(before) == ["before"]
    assert traces.identities(traces.ranks(house)) == ranks, "what runs does not notice"
    # What was refused may have happened all the same, and then it happens to its end; asked for
    # again it is refused or happens.
    with contextlib.suppress(jobs.sagemaker.exceptions.ResourceInUse):
        jobs.sagemaker.create_training_job(**request)
    jobs.completed(request["TrainingJobName"])
    jobs.sagemaker.stop_training_job(TrainingJobName=running)
    assert jobs.wait(running)["TrainingJobStatus"] == "Stopped"


def test_log_lines_that_are_not_durable_come_again(jobs):
    house = jobs.house
    name = jobs.command("i=1; while [ $i -le 300 ]; do echo line $i; i=$((i+1)); sleep 0.01; done")
    jobs.saying(name, "line 1")
    with failing(house, house.data / "telemetry.db-wal"):
        ends_and_says_why(house, "telemetry.db")
    jobs.completed(name)
    assert jobs.lines(name) == [f"line {i}" for i in range(1, 301)]


def test_an_object_whose_row_is_not_durable_is_not_acknowledged(jobs):
    house = jobs.house
    jobs.put("disk/kept", "kept")
    with failing(house, house.data / "objects.db-wal"):
        with pytest.raises((ClientError, BotoCoreError)):
            house.client("s3", config=ONCE).put_object(Bucket=BUCKET, Key="disk/lost", Body=b"lost")
        ends_and_says_why(house, "objects.db")
    found = [item["Key"] for item in jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix="disk/")["Contents"]]
    contents = [jobs.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in found]
    assert dict(zip(found, contents)) in ({"disk/kept": b"kept"}, {"disk/kept": b"kept", "disk/lost": b"lost"})


def test_an_object_whose_content_is_not_durable_is_not_there(jobs):
    """A file that was never named can be forgotten: the server goes on."""
    house = jobs.house
    jobs.put("content/kept", "kept")
    with failing(house):
        with pytest.raises(ClientError) as refused:
            house.client("s3", config=ONCE).put_object(Bucket=BUCKET, Key="content/lost", Body=bytes(20_000_000))
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert [item["Key"] for item in jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix="content/")["Contents"]] == [
        "content/kept"
    ]
    jobs.put("content/lost", "not lost any more")
    assert jobs.s3.get_object(Bucket=BUCKET, Key="content/lost")["Body"].read() == b"not lost any more"


def test_small_objects_outlive_a_sync_that_failed(jobs):
    """They are synced many at a time; until then, and after a failure, their content stands with
    their rows.
    """
    house = jobs.house
    bodies = {f"small/{number}": bytes([number]) * 60_000 for number in range(100)}
    stored = {}
    s3 = house.client("s3", config=ONCE)
    with failing(house, calls="syncfs"):
        with contextlib.suppress(ClientError, BotoCoreError):
            for key, body in bodies.items():
                s3.put_object(Bucket=BUCKET, Key=key, Body=body)
                stored[key] = body
        ends_and_says_why(house, "objects")
    assert len(stored) > 10
    for key, body in stored.items():
        assert jobs.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == body


def test_a_model_that_is_not_durable_is_sent_again(jobs):
    house = jobs.house
    line = "echo ready; sleep 1; head -c 20000000 /dev/urandom > $SM_MODEL_DIR/m; sha256sum < $SM_MODEL_DIR/m"
    name = jobs.command(line)
    jobs.saying(name, "ready")
    (run,) = (house.data / "runs").iterdir()
    parts = run / "parts-1-model"
    with failing(house, parts) as log:
        eventually(lambda: log.read_text().count("EIO") >= 5)
    jobs.completed(name)
    assert jobs.lines(name)[1] == f"{hashlib.sha256(jobs.artifact(name)['m']).hexdigest()}  -"
