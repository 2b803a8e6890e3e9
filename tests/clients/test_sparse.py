"""Files with holes: what is stored counts, holes stay holes, and packing ends with the job that
is stopped.
"""

import io
import pathlib
import subprocess
import tarfile

import pytest
from botocore.exceptions import ClientError
from house import eventually
from jobs import BUCKET, Jobs

HOLE = 15 << 40


@pytest.fixture(scope="module")
def jobs(make_house):
    return Jobs(make_house("--grace-s", "1"))


def test_a_hole_in_the_model_is_packed_as_one(jobs):
    name = jobs.command(
        f"truncate -s {HOLE} /opt/ml/model/table && printf end >> /opt/ml/model/table && chmod 6755 /opt/ml/model/table"
    )
    jobs.completed(name)
    body = jobs.s3.get_object(Bucket=BUCKET, Key=f"out/{name}/output/model.tar.gz")["Body"].read()
    assert len(body) < 100_000
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        (member,) = tar.getmembers()
        assert (member.name, member.size, member.mode) == ("table", HOLE + 3, 0o755)
        file = tar.extractfile(member)
        file.seek(HOLE - 1)
        assert file.read() == b"\0end"


def test_a_hole_that_would_be_stored_as_zeros_is_refused(jobs):
    output = {"S3OutputPath": f"s3://{BUCKET}/out", "CompressionType": "NONE"}
    name = jobs.command(f"truncate -s {HOLE} /opt/ml/model/table", OutputDataConfig=output)
    assert "more than VolumeSizeInGB allows" in jobs.failed(name)
    name = jobs.command("truncate -s 3M /opt/ml/model/table", OutputDataConfig=output)
    jobs.completed(name)
    assert jobs.s3.get_object(Bucket=BUCKET, Key=f"out/{name}/output/model/table")["Body"].read() == bytes(3 << 20)


def test_a_hole_in_a_checkpoint_is_not_sent(jobs):
    checkpoints = {"S3Uri": f"s3://{BUCKET}/sparse/checkpoints", "LocalPath": "/opt/ml/checkpoints"}
    name = jobs.command(
        f"truncate -s {HOLE} /opt/ml/checkpoints/table; echo state > /opt/ml/checkpoints/state",
        CheckpointConfig=checkpoints,
    )
    jobs.completed(name)
    listed = jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix="sparse/")["Contents"]
    assert [it["Key"] for it in listed] == ["sparse/checkpoints/state"]
    (note,) = [line for line in jobs.logs(name)["algo-1"] if "is not saved" in line]
    assert f"checkpoint table is not saved: it has {HOLE} bytes" in note


def test_a_hole_is_sent_once_and_takes_no_room(jobs):
    checkpoints = {"S3Uri": f"s3://{BUCKET}/hole/checkpoints", "LocalPath": "/opt/ml/checkpoints"}
    room = lambda: int(
        subprocess.run(
            ["du", "-sm", jobs.house.data / "objects"], capture_output=True, text=True, check=True
        ).stdout.split()[0]
    )
    before = room()
    # The last one would make it more than VolumeSizeInGB together; it is on its way when the
    # program ends.
    fill = "truncate -s 700M table; printf end >> table; sleep 1; truncate -s 700M other"
    name = jobs.command(f"cd /opt/ml/checkpoints; {fill}", CheckpointConfig=checkpoints)
    jobs.completed(name)
    size = (700 << 20) + 3
    (listed,) = jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix="hole/")["Contents"]
    assert (listed["Key"], listed["Size"]) == ("hole/checkpoints/table", size)
    tail = jobs.s3.get_object(Bucket=BUCKET, Key=listed["Key"], Range=f"bytes={size - 5}-")["Body"].read()
    assert tail == b"\0\0end" and room() - before < 50
    notes = [line for line in jobs.logs(name)["algo-1"] if "checkpoint" in line]
    assert any("checkpoint other is not saved" in note and "for all files together" in note for note in notes), notes
    assert any(
        f"1 checkpoint files are saved below s3://{BUCKET}/hole/checkpoints ({size} bytes were sent)" in note
        for note in notes
    ), notes


def packers(jobs):
    """Processes that pack for instances of this server, with their control groups."""
    mark = f"shoal-pack:{(jobs.house.data / 'id').read_text().strip()}"
    found = [
        path.parent
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")
        if path.read_bytes().startswith(mark.encode())
    ]
    return [(process.name, (process / "cgroup").read_text()) for process in found]


def test_packing_is_within_the_limits_and_ends_with_a_stop_that_came_before(jobs):
    # One file in the volume, and a hundred gigabytes for whoever packs it.
    links = "cd /opt/ml/model; head -c 50M /dev/zero | tr '\\0' x > 0; for i in $(seq 2000); do ln 0 $i; done"
    name = jobs.command(f"{links}; trap 'exit 0' TERM; echo ready; while true; do sleep 0.1; done")
    jobs.saying(name, "ready")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    ((_, groups),) = eventually(lambda: packers(jobs), 60)
    own = [
        line
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()
        if "memory" in line or line.startswith("0::")
    ]
    memory = [line for line in groups.splitlines() if "memory" in line or line.startswith("0::")]
    assert memory == own or any(line.endswith("-pack") and "/shoal/together-" in line for line in memory), groups
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    assert packers(jobs) == []


def test_a_stop_ends_packing(jobs):
    # Does not compress, so that it takes some seconds.
    name = jobs.command("head -c 800M /dev/urandom > /opt/ml/model/noise")
    jobs.until(name, "Uploading")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    with pytest.raises(ClientError, match="NoSuchKey|404"):
        jobs.s3.head_object(Bucket=BUCKET, Key=f"out/{name}/output/model.tar.gz")
