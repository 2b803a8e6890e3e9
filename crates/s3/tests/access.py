"""The client's side of the tests in boto3.rs of who may do what: signatures, presigned URLs and keys
of jobs; run as `access.py CASE ENDPOINT`.
"""

import base64
import datetime
import hashlib
import io
import os
import sys

import botocore
from connection import ENDPOINT, JOB, OWN, connect, exists, read, refused, s3
from signing import send, sign


def presigned_urls():
    s3.create_bucket(Bucket="data")
    s3.put_object(Bucket="data", Key="a b/ü", Body=b"content")

    def open_url(url, method="GET", data=None):
        status, text = send(ENDPOINT, method, url.removeprefix(ENDPOINT), {}, data)
        return status, text.encode()

    for version in ("s3", "s3v4"):
        client = connect(signature_version=version)
        url = client.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": "a b/ü"})
        assert ("AWSAccessKeyId" in url) == (version == "s3"), url
        assert open_url(url) == (200, b"content")
        status, text = open_url(url.replace("%C3%BC", "x"))
        assert status == 403 and b"SignatureDoesNotMatch" in text, text
        url = client.generate_presigned_url("put_object", Params={"Bucket": "data", "Key": f"new-{version}"})
        answer = open_url(url, "PUT", b"put")
        assert answer[0] == 200, answer
        expired = client.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": "a b/ü"}, ExpiresIn=-1)
        status, text = open_url(expired)
        assert status in (400, 403), text
        assert read("data", f"new-{version}") == b"put"
    # Temporary keys bring their token in the URL.
    s3.put_object(Bucket="data", Key="train/x", Body=b"mine")
    for version in ("s3", "s3v4"):
        url = connect(JOB, signature_version=version).generate_presigned_url(
            "get_object", Params={"Bucket": "data", "Key": "train/x"}
        )
        assert open_url(url) == (200, b"mine"), version
        url = connect(JOB, signature_version=version).generate_presigned_url(
            "get_object", Params={"Bucket": "data", "Key": "a b/ü"}
        )
        assert open_url(url)[0] == 403


def signatures_are_verified():
    s3.create_bucket(Bucket="data")
    with refused("SignatureDoesNotMatch", 403):
        connect({**OWN, "aws_secret_access_key": "wrong"}).list_buckets()
    with refused("InvalidAccessKeyId", 403):
        connect({**OWN, "aws_access_key_id": "AKIAOTHER"}).list_buckets()
    with refused("SignatureDoesNotMatch", 403):
        connect({**OWN, "aws_secret_access_key": "wrong"}).put_object(Bucket="data", Key="a", Body=b"x" * 1_000_000)
    anonymous = connect(signature_version=botocore.UNSIGNED)
    with refused("AccessDenied", 403):
        anonymous.list_objects_v2(Bucket="data")
    with refused("AccessDenied", 403):
        anonymous.put_object(Bucket="data", Key="a", Body=b"x")
    for minutes, expected in [(0, 200), (-14, 200), (-16, 403), (16, 403)]:
        headers = {"x-amz-content-sha256": hashlib.sha256(b"").hexdigest()}
        sign(
            ENDPOINT,
            OWN,
            "GET",
            "/",
            headers,
            datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=minutes),
        )
        status, text = send(ENDPOINT, "GET", "/", headers)
        assert status == expected and (status == 200 or "RequestTimeTooSkewed" in text), (minutes, status, text)
    assert s3.list_objects_v2(Bucket="data")["KeyCount"] == 0


def job_keys_open_only_the_job():
    s3.create_bucket(Bucket="data")
    s3.create_bucket(Bucket="private")
    for bucket, key in [("data", "train/a"), ("data", "training"), ("data", "job/x"), ("private", "train/a")]:
        s3.put_object(Bucket=bucket, Key=key, Body=b"content")
    job = connect(JOB)
    assert read("data", "train/a", job) == b"content"
    assert job.list_objects_v2(Bucket="data", Prefix="train/")["KeyCount"] == 1
    job.put_object(Bucket="data", Key="job/y", Body=b"mine")
    job.upload_fileobj(io.BytesIO(os.urandom(9 * 1024 * 1024)), "data", "job/large")
    job.copy_object(Bucket="data", Key="job/copy", CopySource="data/train/a")
    job.delete_objects(Bucket="data", Delete={"Objects": [{"Key": "job/y"}]})
    job.head_bucket(Bucket="data")
    for forbidden in [
        lambda: read("data", "training", job),
        lambda: read("private", "train/a", job),
        lambda: job.put_object(Bucket="data", Key="train/a", Body=b"evil"),
        lambda: job.put_object(Bucket="private", Key="job/a", Body=b"evil"),
        lambda: job.create_multipart_upload(Bucket="data", Key="train/b"),
        lambda: job.delete_object(Bucket="data", Key="train/a"),
        lambda: job.delete_objects(Bucket="data", Delete={"Objects": [{"Key": "job/x"}, {"Key": "train/a"}]}),
        lambda: job.copy_object(Bucket="data", Key="job/stolen", CopySource="private/train/a"),
        lambda: job.list_objects_v2(Bucket="data"),
        lambda: job.list_objects_v2(Bucket="data", Prefix="tr"),
        lambda: job.list_objects(Bucket="private", Prefix="train/"),
        lambda: job.list_buckets(),
        lambda: job.create_bucket(Bucket="new-bucket"),
        lambda: job.delete_bucket(Bucket="data"),
    ]:
        with refused("AccessDenied", 403):
            forbidden()
    with refused("403", 403):
        job.head_bucket(Bucket="private")
    assert exists("data", "job/x"), "a refused batch removes nothing"
    # What a job deletes in a bucket with versions is still there.
    s3.put_bucket_versioning(Bucket="data", VersioningConfiguration={"Status": "Enabled"})
    version = job.put_object(Bucket="data", Key="job/kept", Body=b"kept")["VersionId"]
    job.delete_object(Bucket="data", Key="job/kept")
    named = {"Key": "job/kept", "VersionId": version}
    for forbidden in [
        lambda: job.delete_object(Bucket="data", **named),
        lambda: job.delete_objects(Bucket="data", Delete={"Objects": [named]}),
        lambda: job.put_bucket_versioning(Bucket="data", VersioningConfiguration={"Status": "Suspended"}),
        lambda: job.delete_bucket_lifecycle(Bucket="data"),
    ]:
        with refused("AccessDenied", 403):
            forbidden()
    assert read("data", "job/kept", job, VersionId=version) == b"kept"
    for token in (None, "wrong"):
        with refused("InvalidToken", 400):
            read("data", "train/a", connect({**JOB, "aws_session_token": token}))


def a_parameter_is_the_same_however_it_is_written():
    s3.create_bucket(Bucket="data")
    s3.put_bucket_versioning(Bucket="data", VersioningConfiguration={"Status": "Enabled"})
    version = connect(JOB).put_object(Bucket="data", Key="job/kept", Body=b"kept")["VersionId"]
    for keys, expected in [(JOB, 403), (OWN, 204)]:
        headers = {"x-amz-content-sha256": hashlib.sha256(b"").hexdigest()}
        if "aws_session_token" in keys:
            headers["x-amz-security-token"] = keys["aws_session_token"]
        path, now = "/data/job/kept?versionId=" + version, datetime.datetime.now(datetime.timezone.utc)
        sign(ENDPOINT, keys, "DELETE", path, headers, now)
        answer = send(ENDPOINT, "DELETE", path.replace("versionId", "version%49d"), headers)
        assert answer[0] == expected, answer
    s3.put_object(Bucket="data", Key="secret", Body=b"secret")
    url = connect(signature_version="s3v4").generate_presigned_url("put_object", Params={"Bucket": "data", "Key": "to"})
    url = url.removeprefix(ENDPOINT)
    copies = {"x-amz-copy-source": "data/secret"}
    for spelt in [url, url.replace("SignedHeaders", "SignedHeader%73"), url.replace("X-Amz-S", "X%2DAmz-S")]:
        for headers in [copies, {**copies, "authorization": "Basic QQ=="}]:
            status, text = send(ENDPOINT, "PUT", spelt, headers)
            assert status == 403 and "not signed: x-amz-copy-source" in text, (spelt, headers, text)
        assert send(ENDPOINT, "PUT", spelt, {}, b"")[0] == 200, spelt
    long = connect(signature_version="s3v4").generate_presigned_url(
        "get_object", Params={"Bucket": "data", "Key": "to"}, ExpiresIn=604_801
    )
    status, text = send(ENDPOINT, "GET", long.removeprefix(ENDPOINT).replace("X-Amz-Expires", "X-Amz-Expire%73"), {})
    assert status == 400 and "AuthorizationQueryParametersError" in text, text


def forms_write_what_their_key_may():
    s3.create_bucket(Bucket="data")

    def upload(keys, key, headers=(), **fields):
        conditions = [{name: value} for name, value in fields.items()]
        form = connect(keys, signature_version="s3v4").generate_presigned_post(
            "data", key, Fields=dict(fields), Conditions=conditions
        )
        boundary = "boundary"
        parts = [
            f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in form["fields"].items()
        ]
        parts.append(f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\nsent\r\n')
        body = ("".join(parts) + f"--{boundary}--\r\n").encode()
        sent = {"content-type": f"multipart/form-data; boundary={boundary}", **dict(headers)}
        if "aws_session_token" in keys:
            sent["x-amz-security-token"] = keys["aws_session_token"]
        return send(ENDPOINT, "POST", "/data", sent, body)

    for keys, key, expected in [
        (OWN, "own", 204),
        (JOB, "job/a", 204),
        (JOB, "train/a", 403),
        (JOB, "own", 403),
    ]:
        answer = upload(keys, key)
        assert answer[0] == expected, (key, answer)
    assert read("data", "own") == read("data", "job/a") == b"sent"
    customer = base64.b64encode(b"k" * 32).decode()
    digest = base64.b64encode(hashlib.md5(b"k" * 32).digest()).decode()
    prefix = "x-amz-server-side-encryption-customer-"
    fields = {f"{prefix}algorithm": "AES256", f"{prefix}key": customer, f"{prefix}key-MD5": digest}
    status, text = upload(OWN, "customer", {"x-public": "1"}, **fields)
    assert status == 400 and "secure connection" in text, text
    assert not exists("data", "customer")
    answer = upload(OWN, "customer", **fields)
    assert answer[0] == 204, answer


globals()[sys.argv[1]]()
