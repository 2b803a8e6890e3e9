"""HTTPS: clients over a self-made certificate and over one from files, jobs that do not notice,
and what speaks neither well.
"""

import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request

import boto3
import botocore.exceptions
import pytest
from house import BUCKET, eventually
from jobs import Jobs

PROGRAM = pathlib.Path(__file__).with_name("aws_cli.py")

# Says to whom it speaks and that it is answered there.
LOOK = """
import os, urllib.request
where = os.environ["AWS_ENDPOINT_URL"]
print("endpoint", where, urllib.request.urlopen(where + "/healthz").read().decode(), flush=True)
"""


class Trusting(Jobs):
    """Clients that have what `shoal env` sets, and nothing more."""

    def __init__(self, house):
        self.bundle = house.variables_for_clients()["AWS_CA_BUNDLE"]
        house.client = lambda service, client=house.client, **options: client(service, verify=self.bundle, **options)
        super().__init__(house)


@pytest.fixture(scope="module")
def secure(make_house):
    return make_house("--tls", address="0.0.0.0")


@pytest.fixture(scope="module")
def trusting(secure):
    return Trusting(secure)


def context(house):
    return ssl.create_default_context(cafile=house.variables_for_clients()["AWS_CA_BUNDLE"])


def test_boto3_and_presigned_addresses(secure, trusting):
    variables = secure.variables_for_clients()
    assert variables["AWS_ENDPOINT_URL"].startswith("https://127.0.0.1:")
    assert pathlib.Path(variables["AWS_CA_BUNDLE"]) == secure.data / "tls/authority.pem"
    # Other machines reach it, and hear nothing in the open: nothing to warn of.
    assert "reached from other machines" not in secure.log.read_text()
    body = os.urandom(3_000_000)
    trusting.s3.put_object(Bucket=BUCKET, Key="over/tls", Body=body)
    assert trusting.s3.get_object(Bucket=BUCKET, Key="over/tls")["Body"].read() == body
    address = trusting.s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "over/tls"})
    assert address.startswith("https://")
    assert urllib.request.urlopen(address, context=context(secure)).read() == body


def test_whoever_does_not_trust_the_authority_does_not_speak(secure, trusting):
    environment = {name: value or "" for name, value in secure.variables_for_clients().items()}
    with pytest.raises(botocore.exceptions.SSLError):
        boto3.client(
            "sts",
            endpoint_url=environment["AWS_ENDPOINT_URL"],
            aws_access_key_id="a",
            aws_secret_access_key="b",
            region_name="us-east-1",
        ).get_caller_identity()
    # As on another machine: the endpoint and keys, and not the authority.
    del environment["AWS_CA_BUNDLE"], environment["PYTHONPATH"]
    lost = subprocess.run(
        [secure.binary, "jobs", "list"], env={**os.environ, **environment}, text=True, capture_output=True
    )
    assert lost.returncode == 1 and "is not trusted" in lost.stderr and "set AWS_CA_BUNDLE" in lost.stderr, lost.stderr
    environment["AWS_CA_BUNDLE"] = trusting.bundle
    subprocess.run([secure.binary, "jobs", "list"], env={**os.environ, **environment}, check=True, capture_output=True)


def test_a_job_reaches_the_server_by_its_own_way(secure, trusting):
    name = trusting.python(LOOK)
    trusting.completed(name)
    [line] = [line for line in trusting.lines(name) if line.startswith("endpoint ")]
    assert re.fullmatch(r"endpoint http://127\.0\.0\.1:\d+ shoal [\d.]+", line)


def test_the_aws_cli_and_our_own(secure, tmp_path):
    command = secure.command("exec", "--", sys.executable, str(PROGRAM))
    asked = json.dumps([str(tmp_path), ["s3", "ls"]]) + "\n"
    said = subprocess.run(
        command, env=secure.environment, text=True, input=asked, capture_output=True, check=True
    ).stdout
    status, out, error = json.loads(said)
    assert status == 0 and BUCKET in out, error
    checks = {check["check"]: check for check in json.loads(secure.shoal("doctor", "--json", check=False).stdout)}
    assert checks["server"]["found"].startswith("answers at https://")


def test_the_console_has_secure_cookies(secure):
    link = json.loads(secure.shoal("console", "--json").stdout)["url"]
    assert link.startswith("https://")

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_):
            return None

    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context(secure)), Stay())
    with pytest.raises(urllib.error.HTTPError) as moved:
        opener.open(link)
    assert moved.value.code == 303
    assert re.search(r"shoal-\w+=\S+; Path=/console; .*; Secure$", moved.value.headers["Set-Cookie"])


def test_plain_http_is_told_where_to_go(secure):
    plain = secure.variables_for_clients()["AWS_ENDPOINT_URL"].replace("https", "http", 1)
    for service, call in (("sagemaker", "list_training_jobs"), ("s3", "list_buckets"), ("sts", "get_caller_identity")):
        client = boto3.client(
            service, endpoint_url=plain, aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1"
        )
        with pytest.raises(botocore.exceptions.ClientError) as refused:
            getattr(client, call)()
        error = refused.value.response["Error"]
        assert error["Code"].startswith("AccessDenied") and plain.replace("http", "https", 1) in error["Message"]


def test_half_handshakes_hold_up_nobody(new_house):
    house = new_house("--tls", open_files=256)
    jobs = Trusting(house)
    where = house.variables_for_clients()["AWS_ENDPOINT_URL"].rsplit(":", 1)[1]
    held = []
    for sent in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"):
        for _ in range(256):
            held.append(socket.create_connection(("127.0.0.1", int(where)), timeout=60))
            held[-1].sendall(sent)
        assert jobs.sagemaker.list_training_jobs()["TrainingJobSummaries"] == []
        assert house.client("s3").list_buckets()["Buckets"]
    for client in held:
        client.close()


def make_pair(directory, name):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "60", "-subj", f"/CN={name}",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
         "-keyout", directory / f"{name}.key", "-out", directory / f"{name}.pem"],
        check=True, capture_output=True,
    )  # fmt: skip


def test_certificates_from_files_rotate(new_house, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("needs openssl")
    for name in ("first", "second"):
        make_pair(tmp_path, name)
    data = tmp_path / "data"
    data.mkdir()
    (data / "shoal.toml").write_text('tls = { cert = "../first.pem", key = "../first.key", ca = "../first.pem" }\n')
    house = new_house(data=data)
    assert Trusting(house).sagemaker.list_training_jobs()["TrainingJobSummaries"] == []
    config = json.loads(house.shoal("config", "--json").stdout)
    assert config["tls"]["value"] == "true" and config["tls_cert"]["origin"].startswith("file ")
    for kind in ("key", "pem"):
        (tmp_path / f"second.{kind}").replace(tmp_path / f"first.{kind}")

    def renewed():
        try:
            house.shoal("jobs", "list")
            return True
        except subprocess.CalledProcessError as error:
            assert "is not trusted" in error.stderr
            return False

    # The file that clients trust is the new one's, too.
    eventually(renewed)
    make_pair(tmp_path, "other")
    house.stop()
    wrong = house.shoal(
        "serve", "--listen", "127.0.0.1:0", "--tls-key", str(tmp_path / "other.key"), check=False, timeout=60
    )
    assert wrong.returncode == 1 and "does not belong to the certificate in" in wrong.stderr, wrong.stderr
    house.start()
