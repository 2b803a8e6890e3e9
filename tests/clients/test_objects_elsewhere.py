"""Contents of objects in other S3 servers (`objects = "s3://.."`), whatever is killed when."""

import hashlib
import json
import os
import random
import signal
import subprocess
import time

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from house import BUCKET, SHOAL, eventually
from jobs import Jobs
from s3_servers import KEYS, KINDS, Server

#: Longer than a part of an upload.
LONG = 9_000_000
HURRIED = Config(retries={"total_max_attempts": 1}, read_timeout=60)
#: A store that is slower than its clients refuses some of what they send.
PATIENT = Config(retries={"mode": "standard", "total_max_attempts": 20}, read_timeout=60)


@pytest.fixture(params=KINDS)
def store(request):
    server = Server(request.param)
    yield server
    server.close()


def served(new_house, store, *flags, cache="20MiB"):
    return new_house("--objects", store.address("contents"), "--objects-cache", cache, *flags, variables=KEYS)


def contents(store):
    return [name for name in store.names("contents/") if name.startswith("contents/objects/")]


def local_bytes(house):
    def size(path):
        try:
            return path.stat().st_size
        except FileNotFoundError:
            # It went while the directory was read.
            return 0

    sizes = map(size, (house.data / "objects").glob("*/*"))
    return sum(bytes for bytes in sizes if bytes > 65536)


def test_contents_are_elsewhere_and_whatever_is_killed_none_is_lost(new_house, store):
    seed = int(os.environ.get("SHOAL_SEED", random.randrange(1 << 32)))
    print(f"SHOAL_SEED={seed}")
    draw = random.Random(seed)
    house = served(new_house, store)
    jobs = Jobs(house)
    jobs.s3 = house.client("s3", config=PATIENT)
    expected = {f"k{number}": draw.randbytes(LONG + number) for number in range(4)}
    for key, content in expected.items():
        jobs.put(key, content)
    jobs.put("small", "it stays in the data directory")
    eventually(lambda: len(contents(store)) == 4)
    eventually(lambda: local_bytes(house) <= 20 << 20)

    # The server is killed in the middle of an upload, then the store, then both once more.
    for number in range(4, 8):
        expected[f"k{number}"] = draw.randbytes(LONG)
        jobs.put(f"k{number}", expected[f"k{number}"])
        time.sleep(draw.random() * 0.2)
        if number % 2:
            store.away()
            time.sleep(draw.random() * 0.5)
            store.back()
        house.stop(signal.SIGKILL)
        house.start()
        jobs.s3 = house.client("s3", config=PATIENT)
    eventually(lambda: len(contents(store)) == 8)
    for key, content in expected.items():
        assert jobs.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == content, key
        part = jobs.s3.get_object(Bucket=BUCKET, Key=key, Range="bytes=5000000-5000009")["Body"].read()
        assert part == content[5_000_000:5_000_010]
    if store.kind == "moto":
        # One whose id was on its way to a server that was killed has no part.
        s3 = store.client()
        for upload in s3.list_multipart_uploads(Bucket="ours").get("Uploads", []):
            assert "Parts" not in s3.list_parts(Bucket="ours", Key=upload["Key"], UploadId=upload["UploadId"])

    assert house.shoal("verify").stdout.endswith("nothing is damaged\n")
    for key in expected:
        jobs.s3.delete_object(Bucket=BUCKET, Key=key)
    eventually(lambda: contents(store) == [])
    assert jobs.s3.get_object(Bucket=BUCKET, Key="small")["Body"].read() == b"it stays in the data directory"


def test_a_store_that_is_away_delays_and_fails_nothing(new_house):
    store = Server("moto")
    try:
        house = served(new_house, store)
        jobs = Jobs(house)
        jobs.s3 = house.client("s3", config=PATIENT)
        content = {key: os.urandom(LONG) for key in ("data/a", "data/b", "data/c")}
        for key, body in content.items():
            jobs.put(key, body)
        eventually(lambda: len(contents(store)) == 3 and local_bytes(house) <= 20 << 20)
        store.away()
        s3 = house.client("s3", config=HURRIED)
        answers = []
        for key in content:
            try:
                s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
            except ClientError as error:
                answers.append((error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]))
                assert "does not answer" in error.response["Error"]["Message"]
        assert answers == [("SlowDown", 503)], "two of three are on the local disk"
        # What has no more room is refused; what ends a job is not.
        ended = jobs.script("head -c 9000000 /dev/urandom > /opt/ml/model/weights")
        assert jobs.completed(ended)
        with pytest.raises(ClientError, match="SlowDown"):
            for number in range(5):
                s3.put_object(Bucket=BUCKET, Key=f"more/{number}", Body=os.urandom(LONG))
        reads = jobs.script("sha256sum /opt/ml/input/data/train/*", channels=[jobs.channel("train", "data/")])

        def message():
            return jobs.describe(reads)["SecondaryStatusTransitions"][-1].get("StatusMessage", "")

        eventually(lambda: "does not answer" in message())
        store.back()
        jobs.completed(reads)
        eventually(lambda: json.loads(house.shoal("doctor", "--json", check=False).stdout))
        for key, body in content.items():
            assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == body
    finally:
        store.close()


def test_agents_on_other_machines_read_from_the_store(new_house, tmp_path):
    store = Server("moto")
    try:
        launch = ["--agents-listen", "127.0.0.1:0", "--launch-command", f"/usr/bin/env,SHOAL_CACHE={tmp_path}"]
        house = served(new_house, store, *launch, cache="1MiB")
        jobs = Jobs(house)
        content = {name: os.urandom(LONG) for name in ("first/a", "first/b", "second/c")}
        for key, body in content.items():
            eventually(lambda: local_bytes(house) == 0)
            jobs.put(key, body)
        jobs.put("first/small", "text")
        eventually(lambda: local_bytes(house) == 0)

        def digests(prefix):
            line = "cd $SM_CHANNEL_TRAIN; sha256sum *"
            name = jobs.command(line, InputDataConfig=[jobs.channel("train", prefix)])
            jobs.completed(name)
            return {line.split()[1]: line.split()[0] for line in jobs.lines(name)}

        def digest(body):
            return hashlib.sha256(body).hexdigest()

        expected = {"a": digest(content["first/a"]), "b": digest(content["first/b"]), "small": digest(b"text")}
        assert digests("first/") == expected
        assert (store.door.signed, local_bytes(house)) == (2, 0), "the server has none of it"
        # Where they do not reach the store the server sends it.
        store.door.refuses_signed = True
        assert digests("second/") == {"c": digest(content["second/c"])}
        assert store.door.signed == 3
        jobs.s3.delete_object(Bucket=BUCKET, Key="second/c")
        eventually(lambda: len(contents(store)) == 2)
    finally:
        store.close()


def test_what_is_wrong_with_the_store_is_reported_at_the_start(new_house, store):
    house = served(new_house, store, cache="1MiB")
    Jobs(house).put("k", os.urandom(LONG))
    eventually(lambda: len(contents(store)) == 1 and local_bytes(house) == 0)
    checks = json.loads(house.shoal("doctor", "--json", "--objects", store.address("contents"), check=False).stdout)
    (check,) = [check for check in checks if check["check"] == "objects elsewhere"]
    assert check["state"] == "ok", check

    def start(address, data, **variables):
        command = [SHOAL, "serve", "--data-dir", data, "--listen", "127.0.0.1:0"]
        command += ["--objects", address] if address else []
        environment = {**os.environ, **KEYS, "AWS_EC2_METADATA_DISABLED": "true", **variables}
        ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=60)
        assert ended.returncode != 0
        return ended.stderr

    empty = house.root / "another"
    assert "another data directory" in start(store.address("contents"), empty)
    if store.kind == "moto":
        # s3s-fs makes a bucket that is not there.
        assert "create it" in start(store.address("x").replace("ours", "none-of-ours"), empty)
    else:
        assert "refuses this server's keys" in start(store.address("x"), empty, AWS_SECRET_ACCESS_KEY="wrong")
    house.stop()
    assert "start the server with the setting objects" in start(None, house.data)
    assert "does not have the contents of this data directory" in start(store.address("y"), house.data)
    store.away()
    assert "does not answer" in start(store.address("x"), empty)
    # One that has contents there starts, and waits.
    house.start()
    Jobs(house).put("small", "text")
    eventually(lambda: "does not answer" in house.log.read_text())
