"""Files with holes: what is stored counts, holes stay holes, and packing ends with the job that is stopped."""

import io
import tarfile

import pytest
from botocore.exceptions import ClientError
from jobs import BUCKET, Jobs

HOLE = 15 << 40


@pytest.fixture(scope="module")
def jobs(make_house):
    return Jobs(make_house("--grace-s", "1"))


def test_a_hole_in_the_model_is_packed_as_one(jobs):
    name = jobs.command(f"truncate -s {HOLE} /opt/ml/model/table && printf end >> /opt/ml/model/table && chmod 6755 /opt/ml/model/table")
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
    name = jobs.command(f"truncate -s {HOLE} /opt/ml/checkpoints/table; echo state > /opt/ml/checkpoints/state", CheckpointConfig=checkpoints)
    jobs.completed(name)
    listed = jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix="sparse/")["Contents"]
    assert [it["Key"] for it in listed] == ["sparse/checkpoints/state"]
    (note,) = [line for line in jobs.logs(name)["algo-1"] if "is not saved" in line]
    assert f"checkpoint table is not saved: it has {HOLE} bytes" in note


def test_a_stop_ends_packing(jobs):
    # Does not compress, so that it takes some seconds.
    name = jobs.command("head -c 800M /dev/urandom > /opt/ml/model/noise")
    jobs.until(name, "Uploading")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    with pytest.raises(ClientError, match="NoSuchKey|404"):
        jobs.s3.head_object(Bucket=BUCKET, Key=f"out/{name}/output/model.tar.gz")
