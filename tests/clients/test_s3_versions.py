"""Versions of objects, and rules by which they expire, as boto3 uses them."""

import datetime

import pytest
from house import eventually
from s3_requests import refused

DAY = datetime.timedelta(days=1)


@pytest.fixture(scope="module")
def s3(house):
    return house.client("s3")


def bucket(s3, name, *states):
    s3.create_bucket(Bucket=name)
    for state in states:
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": state})
        assert s3.get_bucket_versioning(Bucket=name)["Status"] == state
    return name


def put(s3, name, key, body, **more):
    return s3.put_object(Bucket=name, Key=key, Body=body, **more).get("VersionId")


def read(s3, name, key, version=None):
    named = {"VersionId": version} if version else {}
    return s3.get_object(Bucket=name, Key=key, **named)["Body"].read()


def versions(s3, name, **more):
    """Key, id, whether it is the latest, and whether it is a marker; of all pages."""
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=name, **more)
    found = []
    for page in pages:
        found += [(it["Key"], it["VersionId"], it["IsLatest"], False) for it in page.get("Versions", [])]
        found += [(it["Key"], it["VersionId"], it["IsLatest"], True) for it in page.get("DeleteMarkers", [])]
    return found


def headers(error):
    return error.value.response["ResponseMetadata"]["HTTPHeaders"]


def test_versions_stay_until_they_are_removed(s3):
    name = bucket(s3, "kept")
    assert "VersionId" not in s3.put_object(Bucket=name, Key="k", Body=b"0")
    bucket_versions = lambda: versions(s3, name, Prefix="k")
    assert bucket_versions() == [("k", "null", True, False)]
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    first, second = put(s3, name, "k", b"1", Tagging="n=1"), put(s3, name, "k", b"22")
    assert bucket_versions() == [("k", second, True, False), ("k", first, False, False), ("k", "null", False, False)]
    assert (read(s3, name, "k"), read(s3, name, "k", first), read(s3, name, "k", "null")) == (b"22", b"1", b"0")
    assert s3.head_object(Bucket=name, Key="k")["VersionId"] == second
    attributes = s3.get_object_attributes(Bucket=name, Key="k", VersionId=first, ObjectAttributes=["ObjectSize"])
    assert (attributes["ObjectSize"], attributes["VersionId"]) == (1, first)

    # Tags are a version's own.
    s3.put_object_tagging(Bucket=name, Key="k", Tagging={"TagSet": [{"Key": "n", "Value": "2"}]})
    found = [s3.get_object_tagging(Bucket=name, Key="k", VersionId=it) for it in (first, second)]
    assert [(it["VersionId"], it["TagSet"][0]["Value"]) for it in found] == [(first, "1"), (second, "2")]
    assert s3.delete_object_tagging(Bucket=name, Key="k", VersionId=first)["VersionId"] == first

    # A delete marker hides them.
    deleted = s3.delete_object(Bucket=name, Key="k")
    marker = deleted["VersionId"]
    assert deleted["DeleteMarker"] and bucket_versions()[-1] == ("k", marker, True, True)
    assert "Contents" not in s3.list_objects_v2(Bucket=name)
    for call, code, named in [(s3.get_object, "NoSuchKey", {}), (s3.get_object, "MethodNotAllowed", marker)]:
        named = {"VersionId": named} if named else {}
        with pytest.raises(s3.exceptions.ClientError, match=code) as error:
            call(Bucket=name, Key="k", **named)
        assert (headers(error)["x-amz-delete-marker"], headers(error)["x-amz-version-id"]) == ("true", marker)
    with refused("405", 405):
        s3.head_object(Bucket=name, Key="k", VersionId=marker)
    with refused("404", 404):
        s3.head_object(Bucket=name, Key="k")
    with refused("InvalidRequest", 400):
        s3.copy_object(Bucket=name, Key="k", CopySource=f"{name}/k?versionId={marker}")
    with refused("NoSuchVersion", 404):
        s3.get_object(Bucket=name, Key="k", VersionId="0" * 32)
    for call in [s3.get_object, s3.delete_object, s3.get_object_tagging]:
        with refused("InvalidArgument", 400):
            call(Bucket=name, Key="k", VersionId="none")
    refusal = s3.delete_objects(Bucket=name, Delete={"Objects": [{"Key": "k", "VersionId": "none"}]})["Errors"][0]
    assert (refusal["Code"], refusal["Message"]) == ("InvalidArgument", "Invalid version id specified")
    assert put(s3, name, "k", b"333", IfNoneMatch="*"), "behind a marker is no object"
    removed = s3.delete_object(Bucket=name, Key="k", VersionId=marker)
    assert (removed["DeleteMarker"], removed["VersionId"]) == (True, marker)
    assert "DeleteMarker" not in s3.delete_object(Bucket=name, Key="k", VersionId=marker), "it is gone"

    # An earlier version becomes the current one by being copied onto its own key, or when what is
    # newer is removed.
    copied = s3.copy_object(Bucket=name, Key="k", CopySource={"Bucket": name, "Key": "k", "VersionId": first})
    assert (copied["CopySourceVersionId"], read(s3, name, "k")) == (first, b"1")
    with refused("InvalidRequest", 400):
        s3.copy_object(Bucket=name, Key="k", CopySource=f"{name}/k")
    s3.delete_object(Bucket=name, Key="k", VersionId=copied["VersionId"])
    assert read(s3, name, "k") == b"333"

    # What a bucket suspends.
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Suspended"})
    assert put(s3, name, "k", b"null") == "null"
    assert len(bucket_versions()) == 4 and read(s3, name, "k", "null") == b"null"
    deleted = s3.delete_object(Bucket=name, Key="k")
    assert (deleted["DeleteMarker"], deleted["VersionId"], len(bucket_versions())) == (True, "null", 4)
    with refused("BucketNotEmpty", 409):
        s3.delete_bucket(Bucket=name)
    all_of_them = [{"Key": key, "VersionId": version} for key, version, *_ in versions(s3, name)]
    answer = s3.delete_objects(Bucket=name, Delete={"Objects": all_of_them})
    assert "Errors" not in answer and sum(it.get("DeleteMarker", False) for it in answer["Deleted"]) == 1
    s3.delete_bucket(Bucket=name)


def test_uploads_lists_and_conditions(s3):
    name = bucket(s3, "listed", "Enabled")
    upload = dict(Bucket=name, Key="a/parts")
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    source = put(s3, name, "b", b"source")
    put(s3, name, "b", b"other")
    part = s3.upload_part_copy(**upload, PartNumber=1, CopySource={"Bucket": name, "Key": "b", "VersionId": source})
    assert part["CopySourceVersionId"] == source
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["CopyPartResult"]["ETag"]}]}
    completed = s3.complete_multipart_upload(**upload, MultipartUpload=parts)
    assert read(s3, name, "a/parts", completed["VersionId"]) == b"source"
    assert s3.complete_multipart_upload(**upload, MultipartUpload=parts)["VersionId"] == completed["VersionId"]

    etag = s3.head_object(Bucket=name, Key="b")["ETag"]
    with refused("PreconditionFailed", 412):
        put(s3, name, "b", b"x", IfMatch='"0"')
    put(s3, name, "b", b"x", IfMatch=etag)
    with refused("304", 304):
        s3.head_object(
            Bucket=name,
            Key="b",
            VersionId=source,
            IfNoneMatch=s3.head_object(Bucket=name, Key="b", VersionId=source)["ETag"],
        )
    both = s3.delete_objects(Bucket=name, Delete={"Objects": [{"Key": "b"}, {"Key": "c"}]})["Deleted"]
    assert all(it["DeleteMarker"] and it["DeleteMarkerVersionId"] for it in both)

    whole = s3.list_object_versions(Bucket=name, Delimiter="/")
    assert whole["CommonPrefixes"] == [{"Prefix": "a/"}]
    assert [it["Key"] for it in whole["DeleteMarkers"]] == ["b", "c"]
    everything = set(versions(s3, name))
    assert len(everything) == 6
    for size in (1, 2, 5):
        assert set(versions(s3, name, PaginationConfig={"PageSize": size})) == everything
    page = s3.list_object_versions(Bucket=name, MaxKeys=2)
    assert (page["NextKeyMarker"], page["IsTruncated"]) == ("b", True)


def test_lifecycle_configurations(s3):
    name = bucket(s3, "ruled")
    with refused("NoSuchLifecycleConfiguration", 404):
        s3.get_bucket_lifecycle_configuration(Bucket=name)
    rules = [
        {
            "ID": "logs & more",
            "Status": "Enabled",
            "Filter": {"And": {"Prefix": "logs/", "Tags": [{"Key": "k", "Value": "v"}], "ObjectSizeGreaterThan": 1}},
            "Expiration": {"Days": 3},
            "NoncurrentVersionExpiration": {"NoncurrentDays": 2, "NewerNoncurrentVersions": 5},
        },
        {
            "ID": "uploads",
            "Status": "Enabled",
            "Filter": {"Prefix": "parts/"},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
        },
        {"ID": "markers", "Status": "Disabled", "Filter": {}, "Expiration": {"ExpiredObjectDeleteMarker": True}},
    ]
    s3.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": rules})
    assert s3.get_bucket_lifecycle_configuration(Bucket=name)["Rules"] == rules

    body = dict(Bucket=name, Key="logs/a", Body=b"12", Tagging="k=v")
    header = s3.put_object(**body)["Expiration"]
    assert 'rule-id="logs%20%26%20more"' in header, header
    date = datetime.datetime.strptime(header.split('"')[1], "%a, %d %b %Y %H:%M:%S GMT")
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    assert 3 * DAY < date - now <= 4 * DAY and date.hour == date.minute == 0
    assert s3.head_object(Bucket=name, Key="logs/a")["Expiration"] == header
    assert s3.get_object(Bucket=name, Key="logs/a")["Expiration"] == header
    assert "Expiration" not in s3.put_object(**{**body, "Body": b"1"})
    upload = s3.create_multipart_upload(Bucket=name, Key="parts/a")
    assert upload["AbortRuleId"] == "uploads"
    upload = {key: upload[key] for key in ("Bucket", "Key", "UploadId")}
    assert 7 * DAY < s3.list_parts(**upload)["AbortDate"].replace(tzinfo=None) - now <= 8 * DAY

    rule = {"Status": "Enabled", "Filter": {}}
    for changed, code in [
        ({"Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]}, "NotImplemented"),
        ({"Expiration": {"Days": 0}}, "InvalidArgument"),
        ({"Expiration": {"Date": now.replace(hour=1)}}, "InvalidArgument"),
        ({"Expiration": {"Days": 1}, "Prefix": ""}, "MalformedXML"),
        ({}, "InvalidRequest"),
    ]:
        with refused(code):
            s3.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": [{**rule, **changed}]})
    assert s3.get_bucket_lifecycle_configuration(Bucket=name)["Rules"] == rules
    s3.delete_bucket_lifecycle(Bucket=name)
    with refused("NoSuchLifecycleConfiguration", 404):
        s3.get_bucket_lifecycle_configuration(Bucket=name)


def test_what_is_due_goes(s3):
    """A date that has passed is due at once. Nothing else goes."""
    past = {"Date": datetime.datetime(2024, 1, 1)}
    rules = [
        {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "old/"}, "Expiration": past},
        {"ID": "markers", "Status": "Enabled", "Filter": {}, "Expiration": {"ExpiredObjectDeleteMarker": True}},
    ]
    plain, kept = bucket(s3, "due"), bucket(s3, "due-kept", "Enabled")
    for name in (plain, kept):
        for key in ("old/a", "old/b", "new"):
            put(s3, name, key, b"x")
    s3.delete_object(Bucket=kept, Key="never")
    for name in (plain, kept):
        s3.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": rules})
    keys = lambda name: [it["Key"] for it in s3.list_objects_v2(Bucket=name)["Contents"]]
    assert eventually(lambda: keys(plain) == keys(kept) == ["new"], 30)
    assert versions(s3, plain) == [("new", "null", True, False)]
    found = [(key, is_latest, is_marker) for key, _, is_latest, is_marker in versions(s3, kept)]
    assert sorted(found) == [
        ("new", True, False),
        ("old/a", False, False),
        ("old/a", True, True),
        ("old/b", False, False),
        ("old/b", True, True),
    ]
