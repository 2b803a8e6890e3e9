"""Keys of any legal spelling come back as they went in; presigned addresses of them work, and
only as they were signed.
"""

import datetime
import http.client
import io
import urllib.parse

import boto3
import pytest
from botocore.config import Config
from house import eventually
from s3_requests import refused, sign

KEYS = [
    "plain",
    "with space",
    " leading and trailing ",
    "a+b",
    "a%20b",
    "100%",
    "%",
    "ünï/cödé/日本語.csv",
    "\U0001f600",
    "e\u0301",
    "\u00e9",
    "a//b",
    "//",
    "/leading",
    "//two",
    "trailing/",
    "trailing//",
    ".",
    "..",
    "./y",
    "../y",
    "dots/../x",
    "dots/./x",
    "dots/..",
    "a/.../b",
    "quote'\"&<>",
    "tab\tand\nline\r",
    "a=b&c=d",
    "?query#fragment",
    "*(!)~:@$,;",
    "back\\slash",
    "[x]{y}|^`",
    "a/b",
    "a",
    "k" * 1024,
    "ü" * 512,
    "\x01\x1f\x7f",
    "null\x00",
    "\u2028\ufffd",
    "-_.~",
]


@pytest.fixture(scope="module")
def s3(house):
    client = house.client("s3")
    client.create_bucket(Bucket="keys")
    return client


@pytest.fixture(scope="module")
def stored(s3):
    for key in KEYS:
        s3.put_object(Bucket="keys", Key=key, Body=key.encode())
    return KEYS


@pytest.mark.parametrize("key", KEYS, ids=ascii)
def test_a_key_is_what_it_was(s3, stored, key):
    assert s3.get_object(Bucket="keys", Key=key)["Body"].read() == key.encode()
    assert s3.head_object(Bucket="keys", Key=key)["ContentLength"] == len(key.encode())
    listed = s3.list_objects_v2(Bucket="keys", Prefix=key, MaxKeys=1)["Contents"]
    assert [item["Key"] for item in listed] == [key]
    copied = "copy of " + key[:500]
    s3.copy_object(Bucket="keys", Key=copied, CopySource={"Bucket": "keys", "Key": key})
    assert s3.get_object(Bucket="keys", Key=copied)["Body"].read() == key.encode()
    s3.delete_object(Bucket="keys", Key=copied)
    back = io.BytesIO()
    s3.download_fileobj("keys", key, back)
    assert back.getvalue() == key.encode()


def test_lists_have_all_of_them(s3, stored):
    in_order = sorted(stored, key=str.encode)
    for operation in ("list_objects", "list_objects_v2"):
        for size in (1, 7, 1000):
            pages = s3.get_paginator(operation).paginate(Bucket="keys", PaginationConfig={"PageSize": size})
            assert [item["Key"] for page in pages for item in page.get("Contents", [])] == in_order, (operation, size)


def test_without_encoding_keys_that_xml_has_no_letters_for_leave_it_well_formed(house, stored):
    """Clients that ask for no encoding get XML that they can read, whatever the keys."""
    import xml.etree.ElementTree as tree

    variables = house.variables_for_clients()
    headers = {}
    sign(variables, "GET", "/keys", headers, datetime.datetime.now(datetime.timezone.utc), "list-type=2")
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(variables["AWS_ENDPOINT_URL"]).netloc)
    connection.request("GET", "/keys?list-type=2", headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    assert answer.status == 200, text
    found = [key.text for key in tree.fromstring(text).iter("{http://s3.amazonaws.com/doc/2006-03-01/}Key")]
    plain = [key for key in stored if key.isprintable()]
    assert len(found) == len(stored) and set(plain) <= set(found)


def test_too_long(s3):
    for key in ("k" * 1025, "ü" * 513):
        with refused("KeyTooLongError", 400):
            s3.put_object(Bucket="keys", Key=key, Body=b"")


def test_batches_take_what_xml_can_carry(s3):
    carried = [key for key in KEYS if not any(letter in key for letter in "\x00\x01\x1f")]
    for key in carried:
        s3.put_object(Bucket="keys", Key="batch/" + key[:500], Body=b"")
    names = ["batch/" + key[:500] for key in carried]
    answer = s3.delete_objects(Bucket="keys", Delete={"Objects": [{"Key": name} for name in names]})
    # XML's readers take a carriage return in a reply for a line feed.
    assert "Errors" not in answer and sorted(item["Key"] for item in answer["Deleted"]) == sorted(
        name.replace("\r", "\n") for name in names
    )
    assert "Contents" not in s3.list_objects_v2(Bucket="keys", Prefix="batch/")


def _client(house, version):
    variables = house.variables_for_clients()
    return boto3.client(
        "s3",
        endpoint_url=variables["AWS_ENDPOINT_URL"],
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        region_name=variables["AWS_REGION"],
        config=Config(signature_version=version),
    )


def _open(url, method, body=None):
    """As the address is: no client's cleaning of dots and slashes."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc)
    connection.request(method, url.split(parts.netloc, 1)[1], body)
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.mark.parametrize("version", ["s3", "s3v4"])
def test_presigned_addresses(house, s3, stored, version):
    client = _client(house, version)
    for key in stored:
        where = {"Bucket": "keys", "Key": key}
        assert _open(client.generate_presigned_url("get_object", Params=where), "GET") == (200, key.encode()), key
        assert _open(client.generate_presigned_url("head_object", Params=where), "HEAD") == (200, b""), key
    where = {"Bucket": "keys", "Key": "put here ü"}
    assert _open(client.generate_presigned_url("put_object", Params=where), "PUT", b"content")[0] == 200
    assert s3.get_object(**where)["Body"].read() == b"content"
    get = client.generate_presigned_url("get_object", Params=where)
    at = get.index("Signature=") + len("Signature=")
    other = get[:at] + ("1" if get[at] == "0" else "0") + get[at + 1 :]
    for tampered in (get.replace("put%20here", "plain"), other, get.replace("Expires=", "Expires=1")):
        status, text = _open(tampered, "GET")
        assert status == 403 and (b"SignatureDoesNotMatch" in text or b"AccessDenied" in text), text
    assert _open(get, "PUT", b"evil")[0] == 403, "signed to be read"
    assert _open(get, "DELETE")[0] == 403
    assert s3.get_object(**where)["Body"].read() == b"content"
    short = client.generate_presigned_url("get_object", Params=where, ExpiresIn=1)
    eventually(lambda: _open(short, "GET")[0] == 403)
    assert b"Request has expired" in _open(short, "GET")[1]
    typed = client.generate_presigned_url("get_object", Params={**where, "ResponseContentType": "text/plain"})
    assert _open(typed, "GET") == (200, b"content")


def test_old_signatures_in_headers_are_refused(house):
    """They have no protection against being sent again."""
    with refused("InvalidRequest", 400):
        _client(house, "s3").list_buckets()
