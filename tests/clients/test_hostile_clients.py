"""Clients that hold connections and memory and never show a signature: the owner is served all
the same.
"""

import datetime
import http.client
import pathlib
import re
import socket
import struct
import time
import urllib.parse

import pytest
from house import BUCKET
from jobs import Jobs

# Looks how a server under attack uses memory and answers others.
pytestmark = pytest.mark.alone

OPEN_FILES = 256
HEAD = "POST / HTTP/1.1\r\nHost: {host}\r\nX-Amz-Target: SageMaker.ListTrainingJobs\r\nX-Amz-Date: {date}\r\n"
SIGNED = HEAD + (
    "Authorization: AWS4-HMAC-SHA256 Credential={key}/{day}/us-east-1/sagemaker/aws4_request, "
    "SignedHeaders=host;x-amz-date;x-amz-target, Signature=" + "0" * 64 + "\r\nContent-Length: {length}\r\n\r\n"
)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")


class Stranger:
    """Knows the owner's access key, which is no secret, and nothing more."""

    def __init__(self, house):
        variables = house.variables_for_clients()
        self.host = urllib.parse.urlsplit(variables["AWS_ENDPOINT_URL"])
        self.key = variables["AWS_ACCESS_KEY_ID"]

    def connect(self, text="", length=0):
        client = socket.create_connection((self.host.hostname, self.host.port), timeout=60)
        date = now()
        client.sendall(
            text.format(host=self.host.netloc, date=date, day=date[:8], key=self.key, length=length).encode()
        )
        return client


def resident(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


def test_strangers_hold_only_each_others_connections(new_house):
    house = new_house(open_files=OPEN_FILES)
    jobs = Jobs(house)
    stranger = Stranger(house)
    held = []
    for text, rest in [("", b""), (HEAD, b""), (SIGNED, b"{" * 10), (SIGNED, b"")]:
        # More of each kind than the server has places in all.
        for _ in range(OPEN_FILES):
            client = stranger.connect(text, length=1000)
            client.sendall(rest)
            held.append(client)
        # By clients that have no connection yet, and by one that has been idle.
        assert house.client("sagemaker").list_training_jobs()["TrainingJobSummaries"] == []
        assert jobs.sagemaker.list_training_jobs()["TrainingJobSummaries"] == []
        house.client("s3").put_object(Bucket=BUCKET, Key="held", Body=b"x" * 100_000)
        assert jobs.s3.get_object(Bucket=BUCKET, Key="held")["Body"].read() == b"x" * 100_000
    assert house.process.poll() is None
    for client in held:
        client.close()


def test_an_upload_of_the_owner_is_not_cut_off_for_strangers(new_house):
    house = new_house(open_files=OPEN_FILES)
    jobs = Jobs(house)
    stranger = Stranger(house)
    held = []

    class Slow:
        """A body during which others come."""

        left = 64

        def read(self, size=-1):
            if not self.left:
                return b""
            if self.left == 64:
                # Until its signature is verified the owner is a stranger, too.
                time.sleep(0.5)
            self.left -= 1
            held.extend(stranger.connect(SIGNED, length=1000) for _ in range(16))
            return b"y" * 65536

        def __len__(self):
            return 64 * 65536

    address = jobs.s3.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "slow"})
    connection = http.client.HTTPConnection(stranger.host.netloc, timeout=120)
    connection.request("PUT", address.split(stranger.host.netloc, 1)[1], Slow(), {"Content-Length": str(64 * 65536)})
    assert connection.getresponse().status == 200
    assert jobs.s3.head_object(Bucket=BUCKET, Key="slow")["ContentLength"] == 64 * 65536
    for client in held:
        client.close()


def test_bodies_of_strangers_have_a_budget(new_house):
    house = new_house()
    jobs = Jobs(house)
    stranger = Stranger(house)
    before = resident(house.pid)
    length = (4 << 20) - 1
    held = [stranger.connect(SIGNED, length=length) for _ in range(150)]
    body = b" " * (length - 1)
    for client in held:
        try:
            client.sendall(body)
        except OSError:
            pass
        # While all of it is there.
        assert resident(house.pid) - before < 256 << 20
    assert jobs.sagemaker.list_training_jobs()["TrainingJobSummaries"] == []
    for client in held:
        client.close()


def test_what_a_head_shows_to_be_wrong_costs_no_body(house):
    stranger = Stranger(house)
    for text, expected in [
        (HEAD + "Content-Length: {length}\r\n\r\n", b"MissingAuthenticationToken"),
        (SIGNED.replace("{key}", "AKIANOBODY"), b"UnrecognizedClient"),
        (SIGNED.replace("host;", ""), b"InvalidSignature"),
        (
            SIGNED.replace("\r\nContent-Length", "\r\nX-Amz-Content-Sha256: " + "0" * 64 + "\r\nContent-Length"),
            b"InvalidSignature",
        ),
        (
            SIGNED.replace("x-amz-target,", "x-amz-content-sha256;x-amz-target,").replace(
                "\r\nContent-Length", "\r\nX-Amz-Content-Sha256: " + "0" * 64 + "\r\nContent-Length"
            ),
            b"InvalidSignature",
        ),
    ]:
        client = stranger.connect(text, length=1_000_000)
        # No byte of the body is sent, and the answer comes.
        assert expected in client.recv(65536), text
        # Ends without the long farewell of a connection that is expected to be used again.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
