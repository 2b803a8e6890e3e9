"""S3 as boto3 uses it."""

import io
import os
import urllib.error
import urllib.request

import pytest
from botocore.exceptions import ClientError

MIB = 1 << 20


@pytest.fixture(scope="module")
def s3(house):
    client = house.client("s3")
    client.create_bucket(Bucket="objects")
    return client


def test_an_object_comes_back(s3):
    key = "a b/c+d/ü.txt"
    s3.put_object(Bucket="objects", Key=key, Body=b"hello", ContentType="text/plain", Metadata={"who": "me"})
    answer = s3.get_object(Bucket="objects", Key=key)
    assert answer["Body"].read() == b"hello"
    assert (answer["ContentType"], answer["Metadata"], answer["ContentLength"]) == ("text/plain", {"who": "me"}, 5)
    assert answer["ETag"] == '"5d41402abc4b2a76b9719d911017c592"'
    assert s3.get_object(Bucket="objects", Key=key, Range="bytes=1-3")["Body"].read() == b"ell"
    s3.delete_object(Bucket="objects", Key=key)
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket="objects", Key=key)


def test_large_files_go_in_parts(s3):
    content = os.urandom(20 * MIB + 7)
    s3.upload_fileobj(io.BytesIO(content), "objects", "large")
    assert s3.head_object(Bucket="objects", Key="large")["ETag"].endswith('-3"')
    back = io.BytesIO()
    s3.download_fileobj("objects", "large", back)
    assert back.getvalue() == content


def test_lists_have_pages_and_prefixes(s3):
    for name in ["l/a", "l/b/1", "l/b/2", "l/c", "other"]:
        s3.put_object(Bucket="objects", Key=name, Body=b"")
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket="objects", Prefix="l/", PaginationConfig={"PageSize": 2}
    )
    assert [entry["Key"] for page in pages for entry in page["Contents"]] == ["l/a", "l/b/1", "l/b/2", "l/c"]
    folded = s3.list_objects_v2(Bucket="objects", Prefix="l/", Delimiter="/")
    assert [entry["Prefix"] for entry in folded["CommonPrefixes"]] == ["l/b/"]
    assert [entry["Key"] for entry in s3.list_objects(Bucket="objects", Prefix="l/b/")["Contents"]] == [
        "l/b/1",
        "l/b/2",
    ]


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
def test_checksums_are_kept(s3, algorithm):
    stored = s3.put_object(Bucket="objects", Key="sum", Body=b"abc", ChecksumAlgorithm=algorithm)
    found = s3.get_object(Bucket="objects", Key="sum", ChecksumMode="ENABLED")
    assert found[f"Checksum{algorithm}"] == stored[f"Checksum{algorithm}"]
    assert found["Body"].read() == b"abc"


@pytest.mark.parametrize(
    "call, code",
    [
        (lambda s3: s3.get_object(Bucket="objects", Key="none"), "NoSuchKey"),
        (lambda s3: s3.get_object(Bucket="no-such-bucket", Key="none"), "NoSuchBucket"),
        (lambda s3: s3.head_object(Bucket="objects", Key="none"), "404"),
        (lambda s3: s3.head_bucket(Bucket="no-such-bucket"), "404"),
        (lambda s3: s3.delete_bucket(Bucket="objects"), "BucketNotEmpty"),
    ],
)
def test_errors_have_amazons_codes(s3, call, code):
    s3.put_object(Bucket="objects", Key="something", Body=b"")
    with pytest.raises(ClientError) as error:
        call(s3)
    assert error.value.response["Error"]["Code"] == code


def test_files_go_up_and_come_down(s3, tmp_path):
    """By boto3's transfer manager: parts beside each other, then ranges beside each other."""
    (tmp_path / "up").write_bytes(os.urandom(20 * MIB + 3))
    s3.upload_file(str(tmp_path / "up"), "objects", "file")
    s3.download_file("objects", "file", str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == (tmp_path / "up").read_bytes()


def test_parts_by_hand(s3):
    """Out of order, one sent twice; given up; and refused where a part is missing."""
    upload = {"Bucket": "objects", "Key": "parts"}
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    bodies = {1: b"a" * 5 * MIB, 2: b"b" * 5 * MIB, 3: b"c"}
    s3.upload_part(**upload, PartNumber=1, Body=b"x" * 5 * MIB)
    tags = {number: s3.upload_part(**upload, PartNumber=number, Body=bodies[number])["ETag"] for number in (3, 1, 2)}
    with pytest.raises(ClientError) as error:
        s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [{"PartNumber": 9, "ETag": tags[1]}]})
    assert error.value.response["Error"]["Code"] == "InvalidPart"
    parts = [{"PartNumber": number, "ETag": tags[number]} for number in (1, 2, 3)]
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    assert s3.get_object(Bucket="objects", Key="parts")["Body"].read() == b"".join(bodies.values())
    other = s3.create_multipart_upload(Bucket="objects", Key="never")["UploadId"]
    s3.abort_multipart_upload(Bucket="objects", Key="never", UploadId=other)
    assert "Contents" not in s3.list_objects_v2(Bucket="objects", Prefix="never")


def test_many_are_deleted_at_once(s3):
    for i in range(5):
        s3.put_object(Bucket="objects", Key=f"many/{i}", Body=b"")
    deleted = s3.delete_objects(Bucket="objects", Delete={"Objects": [{"Key": f"many/{i}"} for i in range(4)]})[
        "Deleted"
    ]
    assert len(deleted) == 4
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket="objects", Prefix="many/")["Contents"]] == ["many/4"]


def test_copies(s3):
    s3.put_object(Bucket="objects", Key="original ü", Body=b"text", ContentType="text/plain", Metadata={"a": "b"})
    s3.copy_object(Bucket="objects", Key="copy", CopySource={"Bucket": "objects", "Key": "original ü"})
    found = s3.get_object(Bucket="objects", Key="copy")
    assert (found["Body"].read(), found["ContentType"], found["Metadata"]) == (b"text", "text/plain", {"a": "b"})


def test_a_presigned_address_needs_no_keys(s3):
    s3.put_object(Bucket="objects", Key="shared", Body=b"for all")
    address = s3.generate_presigned_url("get_object", Params={"Bucket": "objects", "Key": "shared"}, ExpiresIn=60)
    with urllib.request.urlopen(address) as answer:
        assert answer.read() == b"for all"
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(address.replace("shared", "other"))
    assert error.value.code == 403


def test_what_was_changed_in_between_is_not_mixed(s3):
    tag = s3.put_object(Bucket="objects", Key="changing", Body=b"one")["ETag"]
    s3.put_object(Bucket="objects", Key="changing", Body=b"two")
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket="objects", Key="changing", IfMatch=tag)
    assert error.value.response["Error"]["Code"] == "PreconditionFailed"


def test_buckets(s3):
    s3.create_bucket(Bucket="passing")
    assert "passing" in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    assert s3.head_bucket(Bucket="passing")["ResponseMetadata"]["HTTPStatusCode"] == 200
    s3.delete_bucket(Bucket="passing")
    assert "passing" not in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
