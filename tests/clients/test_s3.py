"""S3 as boto3 uses it."""

import io
import os

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
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="objects", Prefix="l/", PaginationConfig={"PageSize": 2})
    assert [entry["Key"] for page in pages for entry in page["Contents"]] == ["l/a", "l/b/1", "l/b/2", "l/c"]
    folded = s3.list_objects_v2(Bucket="objects", Prefix="l/", Delimiter="/")
    assert [entry["Prefix"] for entry in folded["CommonPrefixes"]] == ["l/b/"]
    assert [entry["Key"] for entry in s3.list_objects(Bucket="objects", Prefix="l/b/")["Contents"]] == ["l/b/1", "l/b/2"]


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
