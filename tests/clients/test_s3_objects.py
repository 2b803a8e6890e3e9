"""S3 beyond put and get: tags, copies, conditions, batches, parts by number, a bucket's
settings.
"""

import datetime

import pytest
from s3_requests import refused

MIB = 1 << 20


@pytest.fixture(scope="module")
def s3(house):
    client = house.client("s3")
    client.create_bucket(Bucket="more")
    return client


def tags_of(s3, key):
    return {tag["Key"]: tag["Value"] for tag in s3.get_object_tagging(Bucket="more", Key=key)["TagSet"]}


def tag_set(**tags):
    return {"TagSet": [{"Key": key, "Value": value} for key, value in tags.items()]}


def test_tags(s3):
    s3.put_object(Bucket="more", Key="tagged", Body=b"x", Tagging="kind=raw%20data&owner=me", Metadata={"a": "b"})
    assert tags_of(s3, "tagged") == {"kind": "raw data", "owner": "me"}
    assert s3.get_object(Bucket="more", Key="tagged")["TagCount"] == 2
    assert s3.head_object(Bucket="more", Key="tagged")["ResponseMetadata"]["HTTPHeaders"]["x-amz-tagging-count"] == "2"
    before = s3.head_object(Bucket="more", Key="tagged")["LastModified"]
    s3.put_object_tagging(Bucket="more", Key="tagged", Tagging=tag_set(**{"ü": "=&+", "empty": ""}))
    assert tags_of(s3, "tagged") == {"ü": "=&+", "empty": ""}
    found = s3.head_object(Bucket="more", Key="tagged")
    assert (found["LastModified"], found["Metadata"]) == (before, {"a": "b"})
    copy = dict(Bucket="more", CopySource="more/tagged")
    s3.copy_object(**copy, Key="same-tags")
    assert tags_of(s3, "same-tags") == {"ü": "=&+", "empty": ""}
    s3.copy_object(**copy, Key="other-tags", TaggingDirective="REPLACE", Tagging="new=1")
    assert tags_of(s3, "other-tags") == {"new": "1"}
    s3.delete_object_tagging(Bucket="more", Key="tagged")
    assert tags_of(s3, "tagged") == {}
    assert "TagCount" not in s3.get_object(Bucket="more", Key="tagged")
    # An object that comes in parts is tagged at its beginning.
    upload = dict(Bucket="more", Key="tagged-parts")
    upload["UploadId"] = s3.create_multipart_upload(**upload, Tagging="in=parts")["UploadId"]
    etag = s3.upload_part(**upload, PartNumber=1, Body=b"x")["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    first = s3.complete_multipart_upload(**upload, MultipartUpload=parts)
    assert tags_of(s3, "tagged-parts") == {"in": "parts"}
    # A client that did not hear the answer asks again, and is answered; other parts are another
    # matter.
    assert s3.complete_multipart_upload(**upload, MultipartUpload=parts)["ETag"] == first["ETag"]
    with pytest.raises(s3.exceptions.ClientError, match="NoSuchUpload"):
        s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": "0" * 32}]})


@pytest.mark.parametrize(
    "tags, code",
    [
        (tag_set(**{f"k{n}": "v" for n in range(11)}), "BadRequest"),
        ({"TagSet": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]}, "InvalidTag"),
        (tag_set(**{"aws:x": "1"}), "InvalidTag"),
        (tag_set(k="v" * 257), "InvalidTag"),
    ],
)
def test_tags_have_rules(s3, tags, code):
    s3.put_object(Bucket="more", Key="rules", Body=b"", Tagging="a=b")
    with refused(code, 400):
        s3.put_object_tagging(Bucket="more", Key="rules", Tagging=tags)
    assert tags_of(s3, "rules") == {"a": "b"}
    with refused("NoSuchKey", 404):
        s3.put_object_tagging(Bucket="more", Key="none", Tagging=tag_set(a="b"))
    with refused("NoSuchKey", 404):
        s3.get_object_tagging(Bucket="more", Key="none")


def test_writes_have_conditions(s3):
    first = s3.put_object(Bucket="more", Key="once", Body=b"1", IfNoneMatch="*")["ETag"]
    with refused("PreconditionFailed", 412):
        s3.put_object(Bucket="more", Key="once", Body=b"2", IfNoneMatch="*")
    with refused("PreconditionFailed", 412):
        s3.put_object(Bucket="more", Key="once", Body=b"2", IfMatch='"other"')
    with refused("NoSuchKey", 404):
        s3.put_object(Bucket="more", Key="not-there", Body=b"2", IfMatch=first)
    s3.put_object(Bucket="more", Key="once", Body=b"2", IfMatch=first)

    def complete(key, **conditions):
        upload = dict(Bucket="more", Key=key)
        upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
        etag = s3.upload_part(**upload, PartNumber=1, Body=b"parts")["ETag"]
        return s3.complete_multipart_upload(
            **upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]}, **conditions
        )

    with refused("PreconditionFailed", 412):
        complete("once", IfNoneMatch="*")
    with refused("PreconditionFailed", 412):
        complete("once", IfMatch=first)
    second = complete("completed-once", IfNoneMatch="*")["ETag"]
    complete("completed-once", IfMatch=second)
    source = dict(Bucket="more", CopySource="more/once")
    with refused("PreconditionFailed", 412):
        s3.copy_object(**source, Key="completed-once", IfNoneMatch="*")
    s3.copy_object(**source, Key="copied-once", IfNoneMatch="*")
    assert s3.get_object(Bucket="more", Key="copied-once")["Body"].read() == b"2"


def test_copies_have_conditions_and_directives(s3):
    etag = s3.put_object(Bucket="more", Key="source", Body=b"text", ContentType="a/b", Metadata={"k": "v"})["ETag"]
    copy = dict(Bucket="more", Key="target", CopySource={"Bucket": "more", "Key": "source"})
    old, later = (
        datetime.datetime(2020, 1, 1),
        datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1),
    )
    for condition in (
        dict(CopySourceIfMatch='"x"'),
        dict(CopySourceIfNoneMatch=etag),
        dict(CopySourceIfUnmodifiedSince=old),
        dict(CopySourceIfModifiedSince=later),
    ):
        with refused("PreconditionFailed", 412):
            s3.copy_object(**copy, **condition)
    for condition in (
        dict(CopySourceIfMatch=etag),
        dict(CopySourceIfNoneMatch='"x"'),
        dict(CopySourceIfUnmodifiedSince=later),
        dict(CopySourceIfModifiedSince=old),
    ):
        assert s3.copy_object(**copy, **condition)["CopyObjectResult"]["ETag"] == etag
    found = s3.head_object(Bucket="more", Key="target")
    assert (found["ContentType"], found["Metadata"]) == ("a/b", {"k": "v"})
    s3.copy_object(**copy, MetadataDirective="REPLACE", Metadata={"new": "1"}, CacheControl="no-store")
    found = s3.head_object(Bucket="more", Key="target")
    assert (found["ContentType"], found["Metadata"], found["CacheControl"]) == (
        "binary/octet-stream",
        {"new": "1"},
        "no-store",
    )
    # An object's own attributes change by a copy onto itself, which has to say so.
    itself = dict(Bucket="more", Key="source", CopySource="more/source")
    with refused("InvalidRequest", 400):
        s3.copy_object(**itself)
    s3.copy_object(**itself, MetadataDirective="REPLACE", Metadata={"self": "1"})
    found = s3.get_object(Bucket="more", Key="source")
    assert (found["Body"].read(), found["Metadata"]) == (b"text", {"self": "1"})
    for owner in ("ExpectedBucketOwner", "ExpectedSourceBucketOwner"):
        with refused("AccessDenied", 403):
            s3.copy_object(**copy, **{owner: "999999999999"})


def test_parts_are_copied_from_ranges(s3):
    body = bytes(range(256)) * (6 * MIB // 256)
    etag = s3.put_object(Bucket="more", Key="long", Body=body)["ETag"]
    upload = dict(Bucket="more", Key="pieces")
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    copy = dict(**upload, CopySource="more/long")
    with refused("InvalidRange", 416):
        s3.upload_part_copy(**copy, PartNumber=1, CopySourceRange=f"bytes={len(body)}-{len(body) + 5}")
    with refused("InvalidArgument", 400):
        s3.upload_part_copy(**copy, PartNumber=1, CopySourceRange="bytes")
    with refused("PreconditionFailed", 412):
        s3.upload_part_copy(**copy, PartNumber=1, CopySourceIfMatch='"x"')
    first = s3.upload_part_copy(**copy, PartNumber=1, CopySourceRange=f"bytes=10-{5 * MIB + 9}", CopySourceIfMatch=etag)
    second = s3.upload_part_copy(**copy, PartNumber=2)
    parts = [
        {"PartNumber": number, "ETag": part["CopyPartResult"]["ETag"]} for number, part in ((1, first), (2, second))
    ]
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    assert s3.get_object(Bucket="more", Key="pieces")["Body"].read() == body[10 : 5 * MIB + 10] + body
    # Each part can be asked for by its number.
    part = s3.get_object(Bucket="more", Key="pieces", PartNumber=2)
    assert (part["Body"].read(), part["PartsCount"]) == (body, 2)
    assert part["ContentRange"] == f"bytes {5 * MIB}-{11 * MIB - 1}/{11 * MIB}"
    assert s3.head_object(Bucket="more", Key="pieces", PartNumber=1)["ContentLength"] == 5 * MIB
    with refused("416", 416):
        s3.head_object(Bucket="more", Key="pieces", PartNumber=3)
    with refused("InvalidPartNumber", 416):
        s3.get_object(Bucket="more", Key="pieces", PartNumber=3)
    assert s3.get_object(Bucket="more", Key="long", PartNumber=1)["Body"].read() == body


def test_small_parts_are_refused_at_the_end(s3):
    upload = dict(Bucket="more", Key="small")
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    parts = [{"PartNumber": n, "ETag": s3.upload_part(**upload, PartNumber=n, Body=b"x")["ETag"]} for n in (1, 2)]
    with refused("EntityTooSmall", 400):
        s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    with refused("InvalidRequest", 400):
        s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts[:1]}, MpuObjectSize=7)
    for number in (0, 10_001):
        with refused("InvalidArgument", 400):
            s3.upload_part(**upload, PartNumber=number, Body=b"x")
    s3.abort_multipart_upload(**upload)
    with refused("NoSuchUpload", 404):
        s3.abort_multipart_upload(**upload)


def test_uploads_are_listed_in_pages(s3):
    keys = ["a", "dir/1", "dir/2", "dir/sub/3", "ü +", "z"]
    ids = [
        s3.create_multipart_upload(Bucket="more", Key=f"up/{key}", ChecksumAlgorithm="SHA256")["UploadId"]
        for key in keys
    ]
    ids.append(s3.create_multipart_upload(Bucket="more", Key="up/z")["UploadId"])
    listed = s3.list_multipart_uploads(Bucket="more", Prefix="up/")["Uploads"]
    assert [upload["Key"] for upload in listed] == [
        "up/a",
        "up/dir/1",
        "up/dir/2",
        "up/dir/sub/3",
        "up/z",
        "up/z",
        "up/ü +",
    ]
    assert {upload["UploadId"] for upload in listed} == set(ids)
    assert (listed[0]["ChecksumAlgorithm"], listed[0]["ChecksumType"]) == ("SHA256", "COMPOSITE")
    for size in (1, 2, 3, 100):
        pages = list(
            s3.get_paginator("list_multipart_uploads").paginate(
                Bucket="more", Prefix="up/", PaginationConfig={"PageSize": size}
            )
        )
        assert [upload["UploadId"] for page in pages for upload in page["Uploads"]] == [
            upload["UploadId"] for upload in listed
        ]
        pages = s3.get_paginator("list_multipart_uploads").paginate(
            Bucket="more", Prefix="up/", Delimiter="/", PaginationConfig={"PageSize": size}
        )
        found = [
            (len(page.get("Uploads", [])), [common["Prefix"] for common in page.get("CommonPrefixes", [])])
            for page in pages
        ]
        assert sum(count for count, _ in found) == 4 and sum((common for _, common in found), []) == ["up/dir/"]
    for upload in listed:
        s3.abort_multipart_upload(Bucket="more", Key=upload["Key"], UploadId=upload["UploadId"])
    assert "Uploads" not in s3.list_multipart_uploads(Bucket="more", Prefix="up/")


def test_batches_of_deletions(s3):
    for number in range(3):
        s3.put_object(Bucket="more", Key=f"batch/{number}", Body=b"")
    quiet = s3.delete_objects(Bucket="more", Delete={"Objects": [{"Key": "batch/0"}, {"Key": "none"}], "Quiet": True})
    assert "Deleted" not in quiet and "Errors" not in quiet
    mixed = s3.delete_objects(Bucket="more", Delete={"Objects": [{"Key": "batch/1"}, {"Key": "k" * 1025}]})
    assert [item["Key"] for item in mixed["Deleted"]] == ["batch/1"]
    assert [(item["Key"], item["Code"]) for item in mixed["Errors"]] == [("k" * 1025, "KeyTooLongError")]
    with refused("MalformedXML", 400):
        s3.delete_objects(Bucket="more", Delete={"Objects": [{"Key": str(number)} for number in range(1001)]})
    with refused("MalformedXML", 400):
        s3.delete_objects(Bucket="more", Delete={"Objects": []})
    assert [item["Key"] for item in s3.list_objects_v2(Bucket="more", Prefix="batch/")["Contents"]] == ["batch/2"]


def test_a_buckets_settings(s3):
    """What would have no effect is refused, what holds anyway is accepted, and what is read is
    what holds.
    """
    rules = {"CORSRules": [{"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}]}
    with refused("NotImplemented", 501):
        s3.put_bucket_cors(Bucket="more", CORSConfiguration=rules)
    with refused("NoSuchCORSConfiguration", 404):
        s3.get_bucket_cors(Bucket="more")
    s3.delete_bucket_cors(Bucket="more")
    with refused("MalformedPolicy", 400):
        s3.put_bucket_policy(Bucket="more", Policy='{"Version": "2012-10-17", "Statement": []}')
    with refused("NoSuchBucketPolicy", 404):
        s3.get_bucket_policy(Bucket="more")
    encryption = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}
    s3.put_bucket_encryption(Bucket="more", ServerSideEncryptionConfiguration=encryption)
    found = s3.get_bucket_encryption(Bucket="more")["ServerSideEncryptionConfiguration"]["Rules"][0]
    assert found["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
    s3.put_public_access_block(Bucket="more", PublicAccessBlockConfiguration={"BlockPublicAcls": True})
    assert "Status" not in s3.get_bucket_versioning(Bucket="more")
    assert s3.get_bucket_location(Bucket="more")["LocationConstraint"] is None
    with refused("NoSuchBucket", 404):
        s3.get_bucket_policy(Bucket="no-such-bucket")
    for call in (s3.get_bucket_location, s3.get_bucket_cors, s3.list_objects_v2, s3.list_multipart_uploads):
        with refused("AccessDenied", 403):
            call(Bucket="more", ExpectedBucketOwner="999999999999")
