"""Buckets of other S3 servers that are shown as they are (`[bucket.NAME] passthrough = "s3://.."`)."""

import hashlib
import io
import json
import os
import subprocess
import tarfile

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from house import BUCKET, SHOAL, eventually
from jobs import Jobs
from s3_servers import BUCKET as THEIRS
from s3_servers import KEYS, KINDS, Server

#: Longer than a part of an upload.
LONG = 9_000_000
HURRIED = Config(retries={"total_max_attempts": 1}, read_timeout=60)


@pytest.fixture(params=KINDS)
def store(request):
    server = Server(request.param)
    yield server
    server.close()


def served(new_house, store, *flags):
    shown = f'passthrough = "{store.address("data")}"\n'
    settings = f"[bucket.team-data]\n{shown}[bucket.team-archive]\n{shown}read_only = true\n"
    return new_house(*flags, settings=settings, variables={**KEYS, "AWS_EC2_METADATA_DISABLED": "true"})


def put_theirs(store, **objects):
    for key, body in objects.items():
        store.client().put_object(Bucket=THEIRS, Key=f"data/{key}", Body=body)


def theirs(store, key):
    return store.client().get_object(Bucket=THEIRS, Key=f"data/{key}")["Body"].read()


def refused(call, **arguments):
    """Code, status and message of an error."""
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    error = raised.value.response
    return error["Error"]["Code"], error["ResponseMetadata"]["HTTPStatusCode"], error["Error"].get("Message", "")


def own_files(house):
    return [path for path in (house.data / "objects").glob("*/*") if path.stat().st_size == LONG]


def test_a_teams_bucket_is_a_bucket(new_house, store):
    long = os.urandom(LONG)
    put_theirs(store, **{"train/a.csv": b"1,2\n", "train/b.csv": b"3,4\n", "train/sub/c": b"c"})
    put_theirs(store, z=b"z", long=long)
    if store.kind == "moto":
        # Names that files do not have.
        put_theirs(store, **{"train/folder/": b"", "a//n\u00e4me + 100%.txt": b"slashes"})
    house = served(new_house, store)
    s3 = house.client("s3", config=HURRIED)
    names = {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}
    assert names >= {"team-data", "team-archive"}
    s3.head_bucket(Bucket="team-data")

    # Lists, in pages, in both versions.
    keys = [found["Key"] for found in store.client().list_objects_v2(Bucket=THEIRS)["Contents"]]
    expected = [key.removeprefix("data/") for key in keys]
    for version in ("list_objects", "list_objects_v2"):
        pages = s3.get_paginator(version).paginate(Bucket="team-data", PaginationConfig={"PageSize": 2})
        assert [found["Key"] for page in pages for found in page.get("Contents", [])] == expected, version
        options = {"Prefix": "train/", "Delimiter": "/", "PaginationConfig": {"PageSize": 1}}
        pages = list(s3.get_paginator(version).paginate(Bucket="team-data", **options))
        items = [item for page in pages for kind in ("Contents", "CommonPrefixes") for item in page.get(kind, [])]
        found = [item.get("Key") or item["Prefix"] for item in items]
        folder = ["train/folder/"] if store.kind == "moto" else []
        assert found == ["train/a.csv", "train/b.csv", *folder, "train/sub/"], version
    assert s3.list_objects_v2(Bucket="team-archive", MaxKeys=1)["KeyCount"] == 1

    # Reads, whole, in ranges and under conditions.
    head = s3.head_object(Bucket="team-data", Key="long")
    assert head["ContentLength"] == LONG
    assert s3.get_object(Bucket="team-data", Key="long")["Body"].read() == long
    part = s3.get_object(Bucket="team-data", Key="long", Range="bytes=8000000-8000009")
    assert (part["Body"].read(), part["ContentRange"]) == (long[8_000_000:8_000_010], f"bytes 8000000-8000009/{LONG}")
    assert s3.get_object(Bucket="team-data", Key="long", IfMatch=head["ETag"])["ETag"] == head["ETag"]
    read = {"Bucket": "team-data", "Key": "long"}
    assert refused(s3.get_object, **read, IfNoneMatch=head["ETag"])[1] == 304
    assert refused(s3.get_object, **read, IfMatch='"0"')[0] == "PreconditionFailed"
    assert refused(s3.get_object, Bucket="team-data", Key="none")[0] == "NoSuchKey"
    assert refused(s3.head_object, Bucket="team-data", Key="none")[1] == 404
    if store.kind == "moto":
        assert s3.get_object(Bucket="team-data", Key="a//n\u00e4me + 100%.txt")["Body"].read() == b"slashes"

    # Writes: they are there when they are acknowledged, with their metadata.
    s3.put_object(Bucket="team-data", Key="new", Body=b"new", ContentType="text/csv", Metadata={"by": "anna"})
    found = s3.head_object(Bucket="team-data", Key="new")
    assert (found["ContentType"], found["Metadata"]) == ("text/csv", {"by": "anna"})
    assert store.client().head_object(Bucket=THEIRS, Key="data/new")["Metadata"] == {"by": "anna"}
    put = {"Bucket": "team-data", "Key": "new", "Body": b"x"}
    assert refused(s3.put_object, **put, IfNoneMatch="*")[0] == "PreconditionFailed"
    assert refused(s3.put_object, **put, ChecksumSHA256="A" * 43 + "=")[0] == "BadDigest"
    assert theirs(store, "new") == b"new"
    s3.put_object(Bucket="team-data", Key="long2", Body=long)
    upload = s3.create_multipart_upload(Bucket="team-data", Key="parts")["UploadId"]
    at = {"Bucket": "team-data", "Key": "parts", "UploadId": upload}
    pieces = [long[: 6 << 20], long[6 << 20 :]]
    parts = [
        {"PartNumber": number, "ETag": s3.upload_part(**at, PartNumber=number, Body=piece)["ETag"]}
        for number, piece in enumerate(pieces, 1)
    ]
    s3.complete_multipart_upload(**at, MultipartUpload={"Parts": parts})
    assert theirs(store, "long2") == theirs(store, "parts") == long
    assert own_files(house) == [], "nothing of it stays here"

    # Copies in, out and within; deletions.
    s3.create_bucket(Bucket=BUCKET)
    s3.copy_object(Bucket=BUCKET, Key="out", CopySource="team-data/parts")
    assert s3.get_object(Bucket=BUCKET, Key="out")["Body"].read() == long
    s3.copy_object(Bucket="team-data", Key="in", CopySource=f"{BUCKET}/out")
    s3.copy_object(Bucket="team-data", Key="within", CopySource="team-data/new")
    assert (theirs(store, "in"), theirs(store, "within")) == (long, b"new")
    s3.delete_object(Bucket="team-data", Key="in")
    doomed = [{"Key": key} for key in ("within", "new", "none")]
    gone = s3.delete_objects(Bucket="team-data", Delete={"Objects": doomed})
    assert len(gone["Deleted"]) == 3
    assert refused(s3.head_object, Bucket="team-data", Key="in")[1] == 404

    # Features that such a bucket lacks are refused, with the reason.
    for call, arguments, why in [
        (s3.put_bucket_versioning, {"VersioningConfiguration": {"Status": "Enabled"}}, "one version"),
        (s3.list_object_versions, {}, "one version"),
        (s3.put_object, {"Key": "k", "Body": b"", "Tagging": "a=b"}, "no tags"),
        (s3.get_object_tagging, {"Key": "z"}, "no tags"),
        (s3.put_object, {"Key": "k", "ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k"}, "encrypted as that store"),
        (s3.delete_bucket, {}, "out of shoal.toml"),
    ]:
        code, status, message = refused(call, Bucket="team-data", **arguments)
        assert (code, status) == ("NotImplemented", 501) and why in message, message
    code, status, message = refused(s3.put_object, Bucket="team-archive", Key="k", Body=b"x")
    assert (code, status) == ("AccessDenied", 403) and "read-only" in message
    assert refused(s3.create_multipart_upload, Bucket="team-archive", Key="k")[0] == "AccessDenied"
    assert refused(s3.delete_object, Bucket="team-archive", Key="z")[0] == "AccessDenied"

    # Policies stand in front, as for any bucket.
    statement = {"Effect": "Deny", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::team-data/z"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    s3.put_bucket_policy(Bucket="team-data", Policy=policy)
    assert refused(s3.get_object, Bucket="team-data", Key="z")[0] == "AccessDenied"
    s3.get_object(Bucket="team-data", Key="train/a.csv")
    assert "nothing is damaged" in house.shoal("verify").stdout


def channel(name, prefix, bucket="team-data", **changes):
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/{prefix}", "S3DataDistributionType": "FullyReplicated"}
    source.update(changes.pop("source", {}))
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, **changes}


def test_jobs_read_and_write_there(new_house, store):
    put_theirs(store, **{"train/a": b"first ", "train/sub/b": b"second", "ckpt/old": b"old"})
    put_theirs(store, manifest=json.dumps([{"prefix": "s3://team-data/"}, "train/a"]).encode())
    house = served(new_house, store)
    jobs = Jobs(house)
    line = (
        "cd /opt/ml/input/data; cat files/a files/sub/b asread/a listed/train/a; cat piped_0; "
        "cat /opt/ml/checkpoints/old; echo new > /opt/ml/checkpoints/new; echo model > /opt/ml/model/m"
    )
    name = jobs.command(
        line,
        InputDataConfig=[
            channel("files", "train/"),
            channel("asread", "train/", InputMode="FastFile"),
            channel("listed", "manifest", source={"S3DataType": "ManifestFile"}),
            channel("piped", "train/", "team-archive", InputMode="Pipe"),
        ],
        OutputDataConfig={"S3OutputPath": "s3://team-data/out"},
        CheckpointConfig={"S3Uri": "s3://team-data/ckpt/"},
    )
    described = jobs.completed(name)
    assert "".join(jobs.lines(name)) == "first secondfirst first first secondold"
    assert theirs(store, "ckpt/new") == b"new\n"
    model = described["ModelArtifacts"]["S3ModelArtifacts"]
    with tarfile.open(fileobj=io.BytesIO(theirs(store, model.removeprefix("s3://team-data/")))) as tar:
        assert "m" in [member.removeprefix("./") for member in tar.getnames()]
    output = {"OutputDataConfig": {"S3OutputPath": "s3://team-archive/out"}}
    with pytest.raises(ClientError, match="read-only on this server"):
        jobs.command("true", **output)
    with pytest.raises(ClientError, match="No S3 objects found"):
        jobs.command("true", InputDataConfig=[channel("train", "none/")])


def test_agents_on_other_machines_read_it(new_house, tmp_path):
    store = Server("moto")
    try:
        long = os.urandom(LONG)
        put_theirs(store, **{"train/long": long})
        launch = ["--agents-listen", "127.0.0.1:0", "--launch-command", f"/usr/bin/env,SHOAL_CACHE={tmp_path}"]
        jobs = Jobs(served(new_house, store, *launch))
        sums = []
        for _ in range(2):
            name = jobs.command("sha256sum < $SM_CHANNEL_TRAIN/long", InputDataConfig=[channel("train", "train/")])
            jobs.completed(name)
            sums += [line.split()[0] for line in jobs.lines(name)]
        assert sums == [hashlib.sha256(long).hexdigest()] * 2
        assert LONG <= jobs.inputs_sent() < 2 * LONG, "the node's cache has it by its ETag"
    finally:
        store.close()


def test_a_store_that_is_away_or_wrong(new_house):
    store = Server("moto")
    try:
        put_theirs(store, **{"train/a": b"first\n"})
        house = served(new_house, store)
        jobs = Jobs(house)
        # The model of a job that has ended waits for its bucket.
        waits = jobs.command("sleep 1", OutputDataConfig={"S3OutputPath": "s3://team-data/out"})
        store.away()
        s3 = house.client("s3", config=HURRIED)
        code, status, message = refused(s3.list_objects_v2, Bucket="team-data")
        assert (code, status) == ("ServiceUnavailable", 503) and "does not answer" in message
        with pytest.raises(ClientError, match="does not answer"):
            house.client("sagemaker", config=HURRIED).create_training_job(
                **jobs.request(
                    "away",
                    AlgorithmSpecification={
                        "TrainingImage": "shoal/host",
                        "TrainingInputMode": "File",
                        "ContainerEntrypoint": ["/bin/true"],
                    },
                    InputDataConfig=[channel("train", "train/")],
                )
            )
        eventually(lambda: "its artifacts are not stored yet" in house.log.read_text())
        store.back()
        jobs.completed(waits)

        # The server starts without it, and tells what is wrong with others.
        house.stop()
        settings = (house.data / "shoal.toml").read_text()
        nowhere = store.address("x").replace(THEIRS, "none-of-theirs")
        (house.data / "shoal.toml").write_text(f'{settings}[bucket.nowhere]\npassthrough = "{nowhere}"\n')
        store.away()
        house.start()
        eventually(lambda: "does not answer" in house.log.read_text())
        store.back()
        s3 = house.client("s3", config=HURRIED)
        code, status, message = refused(s3.get_object, Bucket="nowhere", Key="k")
        assert code == "NoSuchKey" or "correct [bucket.nowhere]" in message
        code, status, message = refused(s3.list_objects_v2, Bucket="nowhere")
        assert (code, status) == ("NoSuchBucket", 404) and "correct [bucket.nowhere] in shoal.toml" in message
        with pytest.raises(ClientError, match="s3OutputPath.*correct .bucket.nowhere. in shoal.toml"):
            Jobs(house).command("true", OutputDataConfig={"S3OutputPath": "s3://nowhere/out"})
        checks = json.loads(house.shoal("doctor", "--json", check=False).stdout)
        states = {check["check"]: check["state"] for check in checks}
        assert (states["bucket team-data"], states["bucket nowhere"]) == ("ok", "missing")

        # Without the setting it is hidden; one of the server's own of that name is in the way.
        house.stop()
        (house.data / "shoal.toml").write_text(f'[bucket.{BUCKET}]\npassthrough = "{store.address("data")}"\n')
        command = [SHOAL, "serve", "--data-dir", house.data, "--listen", "127.0.0.1:0"]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, env=house.variables, timeout=60)
        assert ended.returncode != 0 and f"this server has a bucket {BUCKET} of its own" in ended.stderr
        (house.data / "shoal.toml").write_text("")
        house.start()
        buckets = [bucket["Name"] for bucket in house.client("s3").list_buckets()["Buckets"]]
        assert BUCKET in buckets and "team-data" not in buckets
    finally:
        store.close()
