"""Objects at rest: a flipped bit is an error that names the object, on every way to its bytes."""

import json
import signal

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from house import BUCKET, House
from jobs import Jobs
from s3_requests import refused

LONG = bytes(range(256)) * (12 << 10)


@pytest.fixture
def server():
    server = House()
    yield server
    server.close()


def flip(server, content, at):
    """Changes a byte of the one object's file with this content."""
    (file,) = [path for path in (server.data / "objects").glob("*/*") if path.read_bytes() == content]
    changed = bytearray(content)
    changed[at] ^= 1
    # In place: channels are links to the same file.
    with open(file, "r+b") as opened:
        opened.write(changed)


def test_a_flipped_bit_is_never_given_out(server):
    jobs = Jobs(server)
    # The default bucket is there from the first start on.
    assert "sagemaker-us-east-1-123456789012" in [bucket["Name"] for bucket in jobs.s3.list_buckets()["Buckets"]]
    contents = {"verify/good": b"good", "verify/long": LONG, "verify/small": b"a small object"}
    for key, content in contents.items():
        jobs.put(key, content)
    report = json.loads(server.shoal("verify", "--json").stdout)
    assert (report["ok"], report["damaged"]) == (True, []) and report["objects"] >= 3

    server.stop(signal.SIGKILL)
    assert "nothing is damaged" in server.shoal("verify").stdout
    flip(server, LONG, 2_000_000)
    server.start()
    jobs.connect()
    long = dict(Bucket=BUCKET, Key="verify/long")
    assert jobs.s3.get_object(**long, Range="bytes=0-9")["Body"].read() == LONG[:10]
    with refused("ObjectDamaged", 422):
        jobs.s3.get_object(**long, Range="bytes=1999990-2000010")
    # A small object is compared whole, once after a start.
    flip(server, contents["verify/small"], 3)
    with refused("ObjectDamaged", 422):
        jobs.s3.get_object(Bucket=BUCKET, Key="verify/small")
    found = server.shoal("verify", "--json", check=False)
    report = json.loads(found.stdout)
    assert (found.returncode, report["ok"]) == (1, False)
    assert [damage["name"] for damage in report["damaged"]] == [
        f"s3://{BUCKET}/verify/long",
        f"s3://{BUCKET}/verify/small",
    ]
    assert "bytes 1048576 to 2097151" in report["damaged"][0]["detail"]

    name = jobs.script("true", channels=[jobs.channel("train", "verify/")])
    assert "object `verify/long` is damaged" in jobs.failed(name)


def test_errors_do_not_name_the_server_s_files(server):
    """Its own log does."""
    jobs = Jobs(server)
    jobs.put("path/long", LONG)
    # Something else is where objects were, so that no file can be opened.
    objects, aside = server.data / "objects", server.root / "aside"
    objects.rename(aside)
    objects.touch()
    with pytest.raises(ClientError) as refused:
        server.client("s3", config=Config(retries={"total_max_attempts": 1})).put_object(
            Bucket=BUCKET, Key="path/other", Body=LONG
        )
    name = jobs.command("true", InputDataConfig=[jobs.channel("train", "path/")])
    for message in [str(refused.value), jobs.failed(name), json.dumps(jobs.describe(name), default=str)]:
        assert message and str(server.root) not in message, message
    assert str(objects) in server.log.read_text()
    objects.unlink()
    aside.rename(objects)
    assert jobs.s3.get_object(Bucket=BUCKET, Key="path/long")["Body"].read() == LONG
