"""Objects at rest: a flipped bit is an error that names the object, on every way to its bytes."""

import json
import signal

import pytest
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
    assert [damage["name"] for damage in report["damaged"]] == [f"s3://{BUCKET}/verify/long", f"s3://{BUCKET}/verify/small"]
    assert "bytes 1048576 to 2097151" in report["damaged"][0]["detail"]

    name = jobs.script("true", channels=[jobs.channel("train", "verify/")])
    assert "object `verify/long` is damaged" in jobs.failed(name)
