"""The same where clients' suites found a difference from AWS, and for what is refused: run as
`answers.py CASE ENDPOINT`.
"""

import base64
import concurrent.futures
import datetime
import os
import sys
import zlib

from botocore.exceptions import ClientError
from connection import ENDPOINT, JOB, OWN, connect, exists, read, refused, s3
from signing import put_chunked, send, sign


def cut_bodies():
    """Bodies in aws-chunked that end at the border of a chunk, lack their trailer, or have
    another length than stated, as objects and as parts.
    """
    s3.create_bucket(Bucket="data")
    upload = s3.create_multipart_upload(Bucket="data", Key="parts")["UploadId"]
    body = os.urandom(150_000)
    crc = base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
    signed, signed_trailer, trailer = (
        f"STREAMING-{kind}"
        for kind in ("AWS4-HMAC-SHA256-PAYLOAD", "AWS4-HMAC-SHA256-PAYLOAD-TRAILER", "UNSIGNED-PAYLOAD-TRAILER")
    )
    forms = [
        *((kind, ("last", "trailer"), None, "IncompleteBody") for kind in (signed, signed_trailer, trailer)),
        *((kind, (2, "last", "trailer"), None, "IncompleteBody") for kind in (signed, signed_trailer, trailer)),
        *((kind, (0, 1, 2, "last", "trailer"), None, "IncompleteBody") for kind in (signed, signed_trailer, trailer)),
        *(
            (kind, (), len(body) + change, "IncompleteBody")
            for kind in (signed, signed_trailer, trailer)
            for change in (-1, 1)
        ),
        *((kind, ("trailer",), None, "MalformedTrailerError") for kind in (signed_trailer, trailer)),
    ]
    for kind, drop, stated, expected in forms:
        for path in ("/data/whole", f"/data/parts?partNumber=1&uploadId={upload}"):
            status, answer = put_chunked(ENDPOINT, OWN, path, body, kind, crc, drop, stated)
            assert (status, f"<Code>{expected}</Code>" in answer) == (400, True), (
                kind,
                drop,
                stated,
                path,
                status,
                answer,
            )
    assert not exists("data", "whole")
    assert "Parts" not in s3.list_parts(Bucket="data", Key="parts", UploadId=upload)
    for kind in (signed, signed_trailer, trailer):
        status, answer = put_chunked(ENDPOINT, OWN, f"/data/parts?partNumber=1&uploadId={upload}", body, kind, crc)
        assert status == 200, (kind, answer)
    # A trailer that nothing announces as part of the body.
    headers = {"x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-trailer": "x-amz-checksum-crc32"}
    sign(ENDPOINT, OWN, "PUT", "/data/whole", headers, datetime.datetime.now(datetime.timezone.utc))
    status, answer = send(ENDPOINT, "PUT", "/data/whole", headers, b"x")
    assert (status, "<Code>InvalidRequest</Code>" in answer) == (400, True), answer


def refusals():
    """What is understood and not served is refused with a sentence, and nothing of it happens."""
    s3.create_bucket(Bucket="data")
    s3.put_object(Bucket="data", Key="a", Body=b"1")
    key = dict(SSECustomerAlgorithm="AES256", SSECustomerKey="0" * 32)
    for call, arguments, code in [
        (s3.put_object, dict(Key="a", Body=b"2", ServerSideEncryption="aws:kms:dsse"), "NotImplemented"),
        (s3.get_object, dict(Key="a", **key), "InvalidRequest"),
        (s3.put_object, dict(Key="a", Body=b"2", ACL="public-read"), "AccessControlListNotSupported"),
        (s3.put_object, dict(Key="a", Body=b"2", GrantRead="id=1"), "AccessControlListNotSupported"),
        (s3.put_object, dict(Key="a", Body=b"2", WebsiteRedirectLocation="/x"), "NotImplemented"),
        (s3.put_object, dict(Key="a", Body=b"2", ObjectLockLegalHoldStatus="ON"), "InvalidRequest"),
        (s3.put_object, dict(Key="a", Body=b"2", StorageClass="SOME"), "InvalidStorageClass"),
        (s3.put_object_acl, dict(Key="a", ACL="public-read"), "AccessControlListNotSupported"),
        (s3.put_bucket_acl, dict(ACL="public-read"), "AccessControlListNotSupported"),
        (s3.put_bucket_policy, dict(Policy="{}"), "MalformedPolicy"),
        (
            s3.put_bucket_versioning,
            dict(VersioningConfiguration={"Status": "Enabled", "MFADelete": "Enabled"}, MFA="1 2"),
            "NotImplemented",
        ),
        (s3.put_bucket_versioning, dict(VersioningConfiguration={}), "IllegalVersioningConfigurationException"),
        (s3.put_bucket_website, dict(WebsiteConfiguration={"IndexDocument": {"Suffix": "i"}}), "NotImplemented"),
        (s3.get_bucket_website, {}, "NoSuchWebsiteConfiguration"),
        (s3.get_object_retention, dict(Key="a"), "InvalidRequest"),
        (
            s3.put_bucket_encryption,
            dict(ServerSideEncryptionConfiguration={"Rules": [{"BucketKeyEnabled": True}]}),
            "NotImplemented",
        ),
        (s3.get_bucket_lifecycle_configuration, {}, "NoSuchLifecycleConfiguration"),
        (s3.get_object_lock_configuration, {}, "ObjectLockConfigurationNotFoundError"),
        (s3.get_object, dict(Key="a", VersionId="3HL4kqtJlcpXroDTDmJ"), "InvalidArgument"),
        (s3.delete_object, dict(Key="a", VersionId="3HL4kqtJlcpXroDTDmJ"), "InvalidArgument"),
        (s3.copy_object, dict(Key="b", CopySource="data/a?versionId=3HL4kqtJlcpXroDTDmJ"), "InvalidArgument"),
    ]:
        try:
            call(Bucket="data", **arguments)
        except ClientError as error:
            assert error.response["Error"]["Code"] == code, (call.__name__, arguments, error.response)
            assert len(error.response["Error"]["Message"]) > 20, error.response
        else:
            raise AssertionError(f"{call.__name__} of {arguments} is not refused")

    def in_public(request, **_):
        request.headers["x-public"] = "1"

    # Keys of customers do not go over plain HTTP.
    s3.meta.events.register("before-send.s3.PutObject", in_public)
    with refused("InvalidRequest"):
        s3.put_object(Bucket="data", Key="a", Body=b"2", **key)
    s3.meta.events.unregister("before-send.s3.PutObject", in_public)
    answer = s3.delete_objects(Bucket="data", Delete={"Objects": [{"Key": "a", "VersionId": "x"}]})
    assert [(item["Key"], item["VersionId"], item["Code"]) for item in answer["Errors"]] == [
        ("a", "x", "InvalidArgument")
    ]
    assert read("data", "a", VersionId="null") == b"1" and not exists("data", "b")
    with refused("NotImplemented"):
        s3.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
    with refused("NotImplemented"):
        s3.create_bucket(Bucket="tagged", CreateBucketConfiguration={"Tags": [{"Key": "team", "Value": "a"}]})
    for call in (s3.get_bucket_website, s3.get_bucket_logging, s3.get_bucket_acl):
        with refused("NoSuchBucket", 404):
            call(Bucket="absent")
    with refused("NoSuchBucket", 404):
        s3.put_bucket_policy(Bucket="absent", Policy="{}")
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["data"]
    s3.put_object(Bucket="data", Key="c", Body=b"3", ACL="bucket-owner-full-control")
    # What is read of a bucket is what holds for all.
    owner = s3.list_buckets()["Owner"]["ID"]
    for lists in (s3.get_bucket_acl(Bucket="data"), s3.get_object_acl(Bucket="data", Key="c")):
        assert [(grant["Grantee"]["ID"], grant["Permission"]) for grant in lists["Grants"]] == [(owner, "FULL_CONTROL")]
    with refused("NoSuchKey", 404):
        s3.get_object_acl(Bucket="data", Key="absent")
    assert "LoggingEnabled" not in s3.get_bucket_logging(Bucket="data")
    assert "Status" not in s3.get_bucket_accelerate_configuration(Bucket="data")
    assert not {"TopicConfigurations", "QueueConfigurations"} & set(
        s3.get_bucket_notification_configuration(Bucket="data")
    )
    assert s3.get_bucket_request_payment(Bucket="data")["Payer"] == "BucketOwner"
    s3.delete_object(Bucket="data", Key="a", VersionId="null")
    assert not exists("data", "a")


def conditional_deletions():
    s3.create_bucket(Bucket="data")
    etag = s3.put_object(Bucket="data", Key="a", Body=b"1")["ETag"]
    found = s3.head_object(Bucket="data", Key="a")
    with refused("PreconditionFailed", 412):
        s3.delete_object(Bucket="data", Key="a", IfMatch='"x"')
    for wrong in (dict(ETag='"x"'), dict(Size=2), dict(LastModifiedTime=datetime.datetime(2020, 1, 1))):
        answer = s3.delete_objects(Bucket="data", Delete={"Objects": [{"Key": "a", **wrong}]})
        assert [item["Code"] for item in answer["Errors"]] == ["PreconditionFailed"], (wrong, answer)
    assert read("data", "a") == b"1"
    right = dict(ETag=etag, Size=1, LastModifiedTime=found["LastModified"])
    assert [
        item["Key"] for item in s3.delete_objects(Bucket="data", Delete={"Objects": [{"Key": "a", **right}]})["Deleted"]
    ] == ["a"]
    assert not exists("data", "a")
    for condition in ("*", etag):
        with refused("PreconditionFailed", 412):
            s3.delete_object(Bucket="data", Key="a", IfMatch=condition)
        s3.put_object(Bucket="data", Key="a", Body=b"1")
        s3.delete_object(Bucket="data", Key="a", IfMatch=condition)
        assert not exists("data", "a")


def completions_at_once():
    """Identical completions at the same time are all answered like the first: none hears
    NoSuchUpload before the object exists.
    """
    s3.create_bucket(Bucket="data")
    clients = [connect(max_pool_connections=1) for _ in range(12)]
    for turn in range(5):
        upload = dict(Bucket="data", Key=f"m{turn}")
        upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
        parts = [
            {"PartNumber": n, "ETag": s3.upload_part(**upload, PartNumber=n, Body=bytes(size))["ETag"]}
            for n, size in ((1, 5 << 20), (2, 1))
        ]
        with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
            complete = lambda client: client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})[
                "ETag"
            ]
            etags = set(pool.map(complete, clients))
        assert etags == {s3.head_object(Bucket="data", Key=f"m{turn}")["ETag"]}
    with refused("NoSuchUpload", 404):
        s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts[:1]})


def versions_and_tags():
    s3.create_bucket(Bucket="data")
    for key in ("a", "b/1", "b/2", "c"):
        s3.put_object(Bucket="data", Key=key, Body=b"12")
    listed = s3.list_object_versions(Bucket="data")
    assert [(item["Key"], item["VersionId"], item["IsLatest"], item["Size"]) for item in listed["Versions"]][1] == (
        "b/1",
        "null",
        True,
        2,
    )
    assert len(listed["Versions"]) == 4 and not listed["IsTruncated"]
    rolled = s3.list_object_versions(Bucket="data", Delimiter="/")
    assert ([item["Key"] for item in rolled["Versions"]], rolled["CommonPrefixes"]) == (["a", "c"], [{"Prefix": "b/"}])
    for size in (1, 2, 3):
        pages = list(
            s3.get_paginator("list_object_versions").paginate(Bucket="data", PaginationConfig={"PageSize": size})
        )
        assert [item["Key"] for page in pages for item in page["Versions"]] == ["a", "b/1", "b/2", "c"], size
    with refused("InvalidArgument", 400):
        s3.list_object_versions(Bucket="data", VersionIdMarker="null")

    with refused("NoSuchTagSet", 404):
        s3.get_bucket_tagging(Bucket="data")
    tags = [{"Key": "kind", "Value": "raw"}, {"Key": "owner", "Value": "ü"}]
    s3.put_bucket_tagging(Bucket="data", Tagging={"TagSet": tags})
    assert s3.get_bucket_tagging(Bucket="data")["TagSet"] == tags
    with refused("InvalidTag", 400):
        s3.put_bucket_tagging(Bucket="data", Tagging={"TagSet": tags + tags})
    s3.delete_bucket_tagging(Bucket="data")
    with refused("NoSuchTagSet", 404):
        s3.get_bucket_tagging(Bucket="data")
    with refused("NoSuchBucket", 404):
        s3.put_bucket_tagging(Bucket="none", Tagging={"TagSet": tags})

    blocked = s3.get_public_access_block(Bucket="data")["PublicAccessBlockConfiguration"]
    assert set(blocked.values()) == {True}
    s3.put_public_access_block(Bucket="data", PublicAccessBlockConfiguration=blocked)
    with refused("NotImplemented"):
        s3.put_public_access_block(
            Bucket="data", PublicAccessBlockConfiguration={**blocked, "BlockPublicPolicy": False}
        )
    encryption = s3.get_bucket_encryption(Bucket="data")["ServerSideEncryptionConfiguration"]
    assert encryption["Rules"][0]["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
    s3.put_bucket_encryption(Bucket="data", ServerSideEncryptionConfiguration=encryption)
    encryption["Rules"][0]["ApplyServerSideEncryptionByDefault"] = {"SSEAlgorithm": "aws:kms"}
    with refused("KMS.NotFoundException"):
        s3.put_bucket_encryption(Bucket="data", ServerSideEncryptionConfiguration=encryption)


def as_aws_answers():
    """Small things in which clients' suites found a difference."""
    s3.create_bucket(Bucket="data")
    body = b"0123456789" * 10
    etag = s3.put_object(Bucket="data", Key="a", Body=body, StorageClass="STANDARD_IA")["ETag"]
    # A range that is none is ignored: for signed headers, for URLs, and not for what may not be
    # read.
    for text in ("bytes=", "bytes=5", "bytes=5-2", "bytes=a-b", "5-9", "bytes=0-1,4-5", "lines=1-2"):
        got = s3.get_object(Bucket="data", Key="a", Range=text)
        assert (got["ResponseMetadata"]["HTTPStatusCode"], got["Body"].read()) == (200, body), text
        assert s3.head_object(Bucket="data", Key="a", Range=text)["ContentLength"] == 100
    for version in ("s3", "s3v4"):
        url = connect(signature_version=version).generate_presigned_url(
            "get_object", Params={"Bucket": "data", "Key": "a"}
        )
        assert send(ENDPOINT, "GET", url.removeprefix(ENDPOINT), {"range": "bytes=x"}) == (200, body.decode())
    with refused("NoSuchKey", 404):
        s3.get_object(Bucket="data", Key="none", Range="bytes=x")
    job = connect(JOB)
    for call in (
        lambda: job.get_object(Bucket="data", Key="a", Range="bytes=x"),
        lambda: job.list_objects_v2(Bucket="data"),
    ):
        with refused("AccessDenied", 403):
            call()
    wrong = connect({**OWN, "aws_secret_access_key": "wrong"})
    with refused("SignatureDoesNotMatch", 403):
        wrong.get_object(Bucket="data", Key="a", Range="bytes=x")

    head = s3.head_object(Bucket="data", Key="a")
    assert (head["ServerSideEncryption"], head["StorageClass"]) == ("AES256", "STANDARD_IA")
    assert s3.list_objects_v2(Bucket="data")["Contents"][0]["StorageClass"] == "STANDARD_IA"
    s3.copy_object(Bucket="data", Key="b", CopySource="data/a")
    assert "StorageClass" not in s3.head_object(Bucket="data", Key="b")
    attributes = s3.get_object_attributes(
        Bucket="data", Key="a", ObjectAttributes=["ETag", "StorageClass", "ObjectSize"]
    )
    assert (attributes["ETag"], attributes["StorageClass"], attributes["ObjectSize"]) == (
        etag.strip('"'),
        "STANDARD_IA",
        100,
    )
    part = s3.head_object(Bucket="data", Key="a", PartNumber=1)
    assert (part["ResponseMetadata"]["HTTPStatusCode"], part["ContentLength"]) == (206, 100)
    assert s3.head_object(Bucket="data", Key="a", Range="bytes=0-1")["ResponseMetadata"]["HTTPStatusCode"] == 206

    upload = s3.create_multipart_upload(Bucket="data", Key="m")["UploadId"]
    for number in (1, 2, 3):
        s3.upload_part(Bucket="data", Key="m", UploadId=upload, PartNumber=number, Body=b"x")
    page = s3.list_parts(Bucket="data", Key="m", UploadId=upload, MaxParts=2)
    assert (page["PartNumberMarker"], page["NextPartNumberMarker"], page["IsTruncated"]) == (0, 2, True)
    page = s3.list_parts(Bucket="data", Key="m", UploadId=upload, PartNumberMarker=2)
    assert (page["PartNumberMarker"], page["NextPartNumberMarker"], page["IsTruncated"]) == (2, 3, False)
    first = s3.list_objects(Bucket="data", MaxKeys=1)
    assert first["IsTruncated"] and "NextMarker" not in first
    assert s3.list_objects(Bucket="data", MaxKeys=1, Delimiter="/")["NextMarker"] == "a"
    assert s3.list_objects_v2(Bucket="data", ContinuationToken="")["ContinuationToken"] == ""
    with refused("InvalidArgument", 400):
        s3.list_objects_v2(Bucket="data", ContinuationToken="!")

    for call, arguments, member, value in [
        (s3.get_object, dict(Bucket="data", Key="none &"), "Key", "none &"),
        (s3.list_objects_v2, dict(Bucket="none"), "BucketName", "none"),
        (s3.list_parts, dict(Bucket="data", Key="m", UploadId="no/ne"), "UploadId", "no/ne"),
        (s3.put_object, dict(Bucket="data", Key="a", Body=b"", IfNoneMatch="*"), "Condition", "If-None-Match"),
        (s3.get_object, dict(Bucket="data", Key="a", IfMatch='"x"'), "Condition", "If-Match"),
        (s3.get_object, dict(Bucket="data", Key="a", Range="bytes=200-"), "RangeRequested", "bytes=200-"),
    ]:
        try:
            call(**arguments)
        except ClientError as error:
            assert error.response["Error"].get(member) == value, error.response
        else:
            raise AssertionError(f"{arguments} is not refused")


globals()[sys.argv[1]]()
