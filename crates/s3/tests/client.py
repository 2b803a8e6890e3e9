"""The client's side of the tests in boto3.rs: one function per test, run as
`client.py CASE ENDPOINT`.
"""

import base64
import concurrent.futures
import datetime
import hashlib
import os
import sys
import tempfile
import zlib

import boto3
from boto3.s3.transfer import TransferConfig
from connection import ENDPOINT, OWN, connect, exists, read, refused, s3
from signing import put_chunked


def buckets():
    assert s3.list_buckets()["Buckets"] == []
    with refused("404", 404):
        s3.head_bucket(Bucket="data")
    with refused("NoSuchBucket", 404):
        s3.list_objects_v2(Bucket="data")
    with refused("NoSuchBucket", 404):
        s3.put_object(Bucket="data", Key="a", Body=b"x" * 100_000)
    s3.create_bucket(Bucket="data")
    s3.create_bucket(Bucket="data")  # as in us-east-1
    with refused("IllegalLocationConstraintException", 400):
        connect(region="eu-west-1").create_bucket(
            Bucket="other.data", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
        )
    s3.create_bucket(Bucket="other.data")
    listed = s3.list_buckets()
    assert [bucket["Name"] for bucket in listed["Buckets"]] == ["data", "other.data"]
    age = datetime.datetime.now(datetime.timezone.utc) - listed["Buckets"][0]["CreationDate"]
    assert age.total_seconds() < 600
    assert s3.head_bucket(Bucket="data")["BucketRegion"] == "us-east-1"
    assert s3.get_bucket_location(Bucket="data")["LocationConstraint"] is None
    with refused("InvalidBucketName"):
        connect(parameter_validation=False).create_bucket(Bucket="Not_Valid")
    # The SDK sends the owner that it expects with every call on its default bucket.
    s3.head_bucket(Bucket="data", ExpectedBucketOwner="123456789012")
    with refused("403", 403):
        s3.head_bucket(Bucket="data", ExpectedBucketOwner="210987654321")
    with refused("AccessDenied", 403):
        s3.put_object(Bucket="data", Key="a", Body=b"x", ExpectedBucketOwner="210987654321")
    s3.put_object(Bucket="data", Key="a", Body=b"x", ExpectedBucketOwner="123456789012")
    with refused("BucketNotEmpty", 409):
        s3.delete_bucket(Bucket="data")
    s3.delete_object(Bucket="data", Key="a")
    s3.delete_bucket(Bucket="data")
    with refused("NoSuchBucket", 404):
        s3.delete_bucket(Bucket="data")


def objects_and_their_attributes():
    s3.create_bucket(Bucket="data")
    body = os.urandom(100_000)
    put = s3.put_object(
        Bucket="data",
        Key="a",
        Body=body,
        ContentType="text/csv; charset=utf-8",
        ContentEncoding="gzip",
        CacheControl="no-store",
        ContentDisposition='attachment; filename="a.csv"',
        Metadata={"purpose": "test", "empty": ""},
        ServerSideEncryption="aws:kms",
    )
    md5 = hashlib.md5(body).hexdigest()
    assert put["ETag"] == f'"{md5}"'
    # Asked for, as SageMaker's SDKs do, and not done: the answer says what is.
    assert put["ServerSideEncryption"] == "AES256"
    assert put["ResponseMetadata"]["HTTPHeaders"]["x-shoal-no-effect"] == "x-amz-server-side-encryption"
    got = s3.get_object(Bucket="data", Key="a")
    assert got["Body"].read() == body
    head = s3.head_object(Bucket="data", Key="a")
    for answer in (got, head):
        assert answer["ContentLength"] == len(body)
        assert answer["ETag"] == f'"{md5}"'
        assert answer["ContentType"] == "text/csv; charset=utf-8"
        assert answer["ContentEncoding"] == "gzip"
        assert answer["CacheControl"] == "no-store"
        assert answer["ContentDisposition"] == 'attachment; filename="a.csv"'
        assert answer["Metadata"] == {"purpose": "test", "empty": ""}
        assert answer["AcceptRanges"] == "bytes"
        assert answer["LastModified"].tzinfo is not None
    assert head["LastModified"] == s3.list_objects_v2(Bucket="data")["Contents"][0]["LastModified"]
    asked = s3.get_object(Bucket="data", Key="a", ResponseContentType="text/plain")
    assert asked["ContentType"] == "text/plain"
    # An object is replaced as a whole.
    s3.put_object(Bucket="data", Key="a", Body=b"")
    got = s3.get_object(Bucket="data", Key="a")
    assert (got["Body"].read(), got["Metadata"], got["ContentType"]) == (b"", {}, "binary/octet-stream")
    with refused("NoSuchKey", 404):
        s3.get_object(Bucket="data", Key="b")
    with refused("404", 404):
        s3.head_object(Bucket="data", Key="b")
    with refused("NoSuchBucket", 404):
        s3.get_object(Bucket="none", Key="b")
    assert s3.get_object_tagging(Bucket="data", Key="a")["TagSet"] == []


def odd_keys():
    s3.create_bucket(Bucket="data")
    keys = [
        "plain",
        "with space",
        "a+b",
        "a%20b",
        "ünï/cödé/日本語.csv",
        "\U0001f600",
        "a//b",
        "/leading",
        "trailing/",
        "dots/../x",
        "./y",
        "quote'\"&<>",
        "tab\tand\nline",
        "a=b&c=d",
        "?query#fragment",
        "*(!)~:@$,;",
        "k" * 1024,
        "back\\slash",
        "a/b",
        "a",
    ]
    for key in keys:
        s3.put_object(Bucket="data", Key=key, Body=key.encode())
    for key in keys:
        assert read("data", key) == key.encode(), key
    listed = [item["Key"] for item in s3.list_objects_v2(Bucket="data")["Contents"]]
    assert listed == sorted(keys, key=str.encode), listed
    listed = [item["Key"] for item in s3.list_objects(Bucket="data")["Contents"]]
    assert listed == sorted(keys, key=str.encode)
    with refused("KeyTooLongError"):
        s3.put_object(Bucket="data", Key="k" * 1025, Body=b"")
    deleted = s3.delete_objects(Bucket="data", Delete={"Objects": [{"Key": key} for key in keys if key.isprintable()]})
    assert "Errors" not in deleted and len(deleted["Deleted"]) == len(keys) - 1
    assert [item["Key"] for item in s3.list_objects_v2(Bucket="data")["Contents"]] == ["tab\tand\nline"]


def ranges():
    s3.create_bucket(Bucket="data")
    body = os.urandom(600_000)
    s3.put_object(Bucket="data", Key="a", Body=body)
    for text, expected in [
        ("0-0", body[:1]),
        ("5-9", body[5:10]),
        ("100-", body[100:]),
        ("-7", body[-7:]),
        ("599999-", body[-1:]),
        ("0-9999999", body),
        ("-9999999", body),
        ("1000-599000", body[1000:599_001]),
    ]:
        got = s3.get_object(Bucket="data", Key="a", Range=f"bytes={text}")
        assert got["Body"].read() == expected, text
        assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
        assert got["ContentLength"] == len(expected)
        assert got["ContentRange"].endswith("/600000")
    assert s3.get_object(Bucket="data", Key="a", Range="bytes=5-9")["ContentRange"] == "bytes 5-9/600000"
    head = s3.head_object(Bucket="data", Key="a", Range="bytes=5-9")
    assert head["ContentLength"] == 5
    with refused("InvalidRange", 416):
        s3.get_object(Bucket="data", Key="a", Range="bytes=600000-")
    s3.put_object(Bucket="data", Key="empty", Body=b"")
    with refused("InvalidRange", 416):
        s3.get_object(Bucket="data", Key="empty", Range="bytes=0-")


def conditions():
    s3.create_bucket(Bucket="data")
    etag = s3.put_object(Bucket="data", Key="a", Body=b"1")["ETag"]
    old = datetime.datetime(2020, 1, 1)
    later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    assert read("data", "a", IfMatch=etag) == b"1"
    assert read("data", "a", IfNoneMatch='"other"') == b"1"
    assert read("data", "a", IfModifiedSince=old) == b"1"
    assert read("data", "a", IfUnmodifiedSince=later) == b"1"
    with refused("PreconditionFailed", 412):
        read("data", "a", IfMatch='"other"')
    with refused("PreconditionFailed", 412):
        read("data", "a", IfUnmodifiedSince=old)
    with refused("304", 304):
        read("data", "a", IfNoneMatch=etag)
    with refused("304", 304):
        read("data", "a", IfModifiedSince=later)
    assert read("data", "a") == b"1", "the connection is still good"
    with refused("PreconditionFailed", 412):
        s3.put_object(Bucket="data", Key="a", Body=b"2", IfNoneMatch="*")
    s3.put_object(Bucket="data", Key="b", Body=b"2", IfNoneMatch="*")
    s3.put_object(Bucket="data", Key="a", Body=b"3", IfMatch=etag)
    with refused("PreconditionFailed", 412):
        s3.put_object(Bucket="data", Key="a", Body=b"4", IfMatch=etag)
    assert (read("data", "a"), read("data", "b")) == (b"3", b"2")


def listings():
    s3.create_bucket(Bucket="data")
    keys = [f"part/{n:04}" for n in range(1005)] + ["a b/1", "a b/2", "a+b", "top", "zz/x/y"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: s3.put_object(Bucket="data", Key=key, Body=key.encode()), keys))
    for operation in ("list_objects", "list_objects_v2"):
        pages = list(s3.get_paginator(operation).paginate(Bucket="data"))
        assert [item["Key"] for page in pages for item in page["Contents"]] == sorted(keys)
        assert len(pages) == 2 and len(pages[0]["Contents"]) == 1000
        pages = list(
            s3.get_paginator(operation).paginate(Bucket="data", Delimiter="/", PaginationConfig={"PageSize": 2})
        )
        found = [item["Prefix"] for page in pages for item in page.get("CommonPrefixes", [])]
        assert found == ["a b/", "part/", "zz/"], found
        found = [item["Key"] for page in pages for item in page.get("Contents", [])]
        assert found == ["a+b", "top"], found
    page = s3.list_objects_v2(Bucket="data", Prefix="a b/", FetchOwner=True)
    assert (page["KeyCount"], page["IsTruncated"], page["Prefix"], page["Name"]) == (2, False, "a b/", "data")
    item = page["Contents"][0]
    assert item["ETag"] == f'"{hashlib.md5(b"a b/1").hexdigest()}"'
    assert (item["Size"], item["StorageClass"], item["Owner"]["ID"]) == (5, "STANDARD", "123456789012")
    assert s3.list_objects_v2(Bucket="data", StartAfter="part/1004")["Contents"][0]["Key"] == "top"
    assert s3.list_objects_v2(Bucket="data", Prefix="nothing")["KeyCount"] == 0
    assert s3.list_objects_v2(Bucket="data", MaxKeys=0)["KeyCount"] == 0
    with refused("InvalidArgument"):
        s3.list_objects_v2(Bucket="data", ContinuationToken="?")
    names = [
        item.key
        for item in boto3.resource("s3", endpoint_url=ENDPOINT, region_name="us-east-1", **OWN)
        .Bucket("data")
        .objects.filter(Prefix="a")
    ]
    assert names == ["a b/1", "a b/2", "a+b"]


def multipart_uploads():
    s3.create_bucket(Bucket="data")
    size = 30 * 1024 * 1024 + 12_345
    with tempfile.TemporaryDirectory() as folder:
        up, down = os.path.join(folder, "up"), os.path.join(folder, "down")
        with open(up, "wb") as file:
            file.write(os.urandom(size))
        s3.upload_file(
            up,
            "data",
            "big",
            ExtraArgs={"ContentType": "x/y", "Metadata": {"k": "v"}, "ServerSideEncryption": "aws:kms"},
        )
        head = s3.head_object(Bucket="data", Key="big")
        assert head["ContentLength"] == size and head["ETag"].endswith('-4"')
        assert (head["ContentType"], head["Metadata"]) == ("x/y", {"k": "v"})
        s3.download_file("data", "big", down)
        with open(up, "rb") as one, open(down, "rb") as two:
            assert one.read() == two.read()
    assert "Uploads" not in s3.list_multipart_uploads(Bucket="data")


def parts_left_alone():
    s3.create_bucket(Bucket="data")
    s3.put_object(Bucket="data", Key="source", Body=b"s" * 8_000_000)
    where = dict(Bucket="data", Key="parts")
    where["UploadId"] = s3.create_multipart_upload(**where)["UploadId"]
    slot = 5 << 20
    s3.upload_part(**where, PartNumber=3, Body=b"3" * slot)
    s3.upload_part(**where, PartNumber=1, Body=b"1" * slot)
    s3.upload_part(**where, PartNumber=4, Body=b"4" * 1_000_000)
    s3.upload_part_copy(**where, PartNumber=2, CopySource="data/source", CopySourceRange=f"bytes=7-{slot + 6}")


def parts_left_alone_become_an_object():
    upload = s3.list_multipart_uploads(Bucket="data")["Uploads"][0]
    where = dict(Bucket="data", Key="parts", UploadId=upload["UploadId"])
    listed = [{"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for part in s3.list_parts(**where)["Parts"]]
    s3.complete_multipart_upload(**where, MultipartUpload={"Parts": listed})
    slot = 5 << 20
    assert read("data", "parts") == b"1" * slot + b"s" * slot + b"3" * slot + b"4" * 1_000_000


def parts_are_verified():
    s3.create_bucket(Bucket="data")
    where = dict(Bucket="data", Key="a/ü")
    upload = s3.create_multipart_upload(**where)["UploadId"]
    where["UploadId"] = upload
    bodies = {number: bytes([number]) * (5 * 1024 * 1024) for number in (2, 1, 3)}
    etags = {number: s3.upload_part(**where, PartNumber=number, Body=body)["ETag"] for number, body in bodies.items()}
    etags[3] = s3.upload_part(**where, PartNumber=3, Body=b"end")["ETag"]
    parts = s3.list_parts(**where, MaxParts=2)
    assert [part["PartNumber"] for part in parts["Parts"]] == [1, 2] and parts["IsTruncated"]
    parts = s3.list_parts(**where, PartNumberMarker=parts["NextPartNumberMarker"])
    assert [(part["PartNumber"], part["Size"], part["ETag"]) for part in parts["Parts"]] == [(3, 3, etags[3])]
    assert [item["Key"] for item in s3.list_multipart_uploads(Bucket="data", Prefix="a/")["Uploads"]] == ["a/ü"]

    def complete(*parts, **arguments):
        listed = {"Parts": [{"PartNumber": number, "ETag": etag} for number, etag in parts]}
        return s3.complete_multipart_upload(**{**where, **arguments}, MultipartUpload=listed)

    with refused("InvalidPart"):
        complete((1, etags[2]))
    with refused("InvalidPart"):
        complete((4, etags[1]))
    with refused("InvalidPartOrder"):
        complete((2, etags[2]), (1, etags[1]))
    with refused("NoSuchUpload", 404):
        complete((1, etags[1]), Key="other")
    with refused("NoSuchUpload", 404):
        s3.upload_part(**{**where, "Key": "other"}, PartNumber=1, Body=b"x")
    assert not exists("data", "a/ü")
    done = complete((1, etags[1]), (2, etags[2]), (3, etags[3]))
    md5s = b"".join(bytes.fromhex(etags[number].strip('"')) for number in (1, 2, 3))
    assert done["ETag"] == f'"{hashlib.md5(md5s).hexdigest()}-3"'
    assert read("data", "a/ü") == bodies[1] + bodies[2] + b"end"
    with refused("NoSuchUpload", 404):
        complete((1, etags[1]))
    where["UploadId"] = s3.create_multipart_upload(Bucket="data", Key="a/ü")["UploadId"]
    s3.upload_part(**where, PartNumber=1, Body=b"x")
    s3.abort_multipart_upload(**where)
    with refused("NoSuchUpload", 404):
        s3.list_parts(**where)


def copies():
    s3.create_bucket(Bucket="data")
    s3.create_bucket(Bucket="other")
    etag = s3.put_object(Bucket="data", Key="a ü+", Body=b"content", ContentType="x/y", Metadata={"k": "v"})["ETag"]
    source = {"Bucket": "data", "Key": "a ü+"}
    copied = s3.copy_object(Bucket="other", Key="b", CopySource=source)
    assert copied["CopyObjectResult"]["ETag"] == etag
    s3.copy_object(
        Bucket="other",
        Key="c",
        CopySource=source,
        MetadataDirective="REPLACE",
        Metadata={"new": "1"},
        ContentType="n/n",
    )
    s3.delete_object(**source)
    got = s3.get_object(Bucket="other", Key="b")
    assert (got["Body"].read(), got["ContentType"], got["Metadata"]) == (b"content", "x/y", {"k": "v"})
    got = s3.get_object(Bucket="other", Key="c")
    assert (got["Body"].read(), got["ContentType"], got["Metadata"]) == (b"content", "n/n", {"new": "1"})
    with refused("NoSuchKey", 404):
        s3.copy_object(Bucket="other", Key="d", CopySource=source)
    with refused("InvalidRequest"):
        s3.copy_object(Bucket="other", Key="b", CopySource="other/b")
    with refused("PreconditionFailed"):
        s3.copy_object(Bucket="other", Key="d", CopySource="other/b", CopySourceIfMatch='"x"')
    # The transfer manager copies large objects in parts.
    body = os.urandom(11 * 1024 * 1024)
    s3.put_object(Bucket="data", Key="large", Body=body)
    s3.copy(
        {"Bucket": "data", "Key": "large"},
        "other",
        "large",
        Config=TransferConfig(multipart_threshold=5 * 1024 * 1024, multipart_chunksize=5 * 1024 * 1024),
    )
    assert s3.head_object(Bucket="other", Key="large")["ETag"].endswith('-3"')
    assert read("other", "large") == body


def deletions():
    s3.create_bucket(Bucket="data")
    for key in "abc":
        s3.put_object(Bucket="data", Key=key, Body=b"x")
    assert s3.delete_object(Bucket="data", Key="a")["ResponseMetadata"]["HTTPStatusCode"] == 204
    s3.delete_object(Bucket="data", Key="a")
    answer = s3.delete_objects(Bucket="data", Delete={"Objects": [{"Key": "b"}, {"Key": "none"}]})
    assert [item["Key"] for item in answer["Deleted"]] == ["b", "none"]
    assert "Deleted" not in s3.delete_objects(Bucket="data", Delete={"Objects": [{"Key": "c"}], "Quiet": True})
    assert s3.list_objects_v2(Bucket="data")["KeyCount"] == 0
    with refused("NoSuchBucket", 404):
        s3.delete_objects(Bucket="none", Delete={"Objects": [{"Key": "b"}]})


def checksums():
    s3.create_bucket(Bucket="data")
    crc = base64.b64encode(zlib.crc32(b"hello").to_bytes(4, "big")).decode()
    sha = base64.b64encode(hashlib.sha256(b"hello").digest()).decode()
    put = s3.put_object(Bucket="data", Key="a", Body=b"hello")
    assert put["ChecksumCRC32"] == crc
    assert s3.get_object(Bucket="data", Key="a", ChecksumMode="ENABLED")["ChecksumCRC32"] == crc
    assert "ChecksumCRC32" not in connect(response_checksum_validation="when_required").head_object(
        Bucket="data", Key="a"
    )
    assert "ChecksumCRC32" not in s3.get_object(Bucket="data", Key="a", ChecksumMode="ENABLED", Range="bytes=0-1")
    put = s3.put_object(Bucket="data", Key="b", Body=b"hello", ChecksumAlgorithm="SHA256")
    assert put["ChecksumSHA256"] == sha
    s3.put_object(Bucket="data", Key="c", Body=b"hello", ChecksumAlgorithm="SHA1")
    assert read("data", "c") == b"hello"
    with refused("BadDigest", 400):
        s3.put_object(Bucket="data", Key="d", Body=b"hello", ChecksumCRC32="AAAAAA==")
    with refused("BadDigest", 400):
        s3.put_object(
            Bucket="data", Key="d", Body=b"hello", ContentMD5=base64.b64encode(hashlib.md5(b"x").digest()).decode()
        )
    s3.put_object(
        Bucket="data", Key="e", Body=b"hello", ContentMD5=base64.b64encode(hashlib.md5(b"hello").digest()).decode()
    )
    # What was refused is not there.
    assert not exists("data", "d") and exists("data", "e")


def chunked_bodies():
    """Bodies in aws-chunked, signed chunk by chunk and unsigned with a trailer; botocore sends
    them over TLS only.
    """
    s3.create_bucket(Bucket="data")
    body = os.urandom(300_000)
    good = base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
    for key, kind, crc, expected in [
        ("signed", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", None, (200, "")),
        ("bad-chunk", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "spoil", (403, "SignatureDoesNotMatch")),
        ("trailer", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", good, (200, "")),
        ("signed-trailer", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", good, (200, "")),
        ("bad-trailer", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "AAAAAA==", (400, "BadDigest")),
    ]:
        status, answer = put_chunked(ENDPOINT, OWN, f"/data/{key}", body, kind, crc)
        assert (status, expected[1] in answer) == (expected[0], True), (key, status, answer)
        if status == 200:
            got = s3.get_object(Bucket="data", Key=key)
            assert got["Body"].read() == body
            assert "ContentEncoding" not in got
        else:
            assert not exists("data", key)


def warm_up():
    s3.create_bucket(Bucket="data")
    s3.put_object(Bucket="data", Key="small", Body=os.urandom(1_000_000))
    assert len(read("data", "small")) == 1_000_000


def large_object():
    size, block = 200_000_000, os.urandom(1_000_000)
    with tempfile.TemporaryFile() as file:
        for _ in range(size // len(block)):
            file.write(block)
        file.seek(0)
        s3.put_object(Bucket="data", Key="large", Body=file)
    s3.copy_object(Bucket="data", Key="copy", CopySource="data/large")
    for chunk in s3.get_object(Bucket="data", Key="copy")["Body"].iter_chunks(len(block)):
        assert chunk == block
        size -= len(chunk)
    assert size == 0


globals()[sys.argv[1]]()
