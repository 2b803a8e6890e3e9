"""S3's five checksums: by header, in trailers, of parts, of wholes made of parts."""

import base64
import datetime
import hashlib
import http.client
import urllib.parse
import zlib

import pytest
from s3_requests import refused, sign

MIB = 1 << 20
ALGORITHMS = ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"]
# Reflected polynomials.
CRCS = {"CRC32C": (0x82F63B78, 4), "CRC64NVME": (0x9A6C9329AC4BC9B5, 8)}


def _crc(data, polynomial, width):
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (polynomial if byte & 1 else 0)
        table.append(byte)
    ones = (1 << 8 * width) - 1
    crc = ones
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return (crc ^ ones).to_bytes(width, "big")


def digest(algorithm, data):
    if algorithm == "CRC32":
        return zlib.crc32(data).to_bytes(4, "big")
    if algorithm in CRCS:
        return _crc(data, *CRCS[algorithm])
    return hashlib.new(algorithm.lower(), data).digest()


def checksum(algorithm, data):
    return base64.b64encode(digest(algorithm, data)).decode()


@pytest.fixture(scope="module")
def s3(house):
    client = house.client("s3")
    client.create_bucket(Bucket="checksums")
    return client


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_headers(s3, algorithm):
    """Those that boto3 cannot compute without more packages, it passes on."""
    name, value = f"Checksum{algorithm}", checksum(algorithm, b"hello")
    assert s3.put_object(Bucket="checksums", Key="a", Body=b"hello", **{name: value})[name] == value
    head = s3.head_object(Bucket="checksums", Key="a", ChecksumMode="ENABLED")
    assert (head[name], head["ChecksumType"]) == (value, "FULL_OBJECT")
    described = s3.get_object_attributes(
        Bucket="checksums", Key="a", ObjectAttributes=["Checksum", "ObjectSize", "ETag", "StorageClass"]
    )
    assert (
        described["Checksum"][name] == value
        and described["ObjectSize"] == 5
        and described["StorageClass"] == "STANDARD"
    )
    with refused("BadDigest", 400):
        s3.put_object(Bucket="checksums", Key="b", Body=b"other", **{name: value})
    with refused("InvalidRequest", 400):
        s3.put_object(Bucket="checksums", Key="b", Body=b"other", **{name: "?"})
    with refused("NoSuchKey"):
        s3.get_object(Bucket="checksums", Key="b")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("right", [True, False])
def test_trailers(house, s3, algorithm, right):
    """As clients send them over TLS: in aws-chunked, unsigned, the checksum last."""
    variables = house.variables_for_clients()
    body = b"some content" * 10_000
    trailer = f"x-amz-checksum-{algorithm.lower()}"
    value = checksum(algorithm, body if right else b"other")
    headers = {
        "content-encoding": "aws-chunked",
        "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "x-amz-decoded-content-length": str(len(body)),
        "x-amz-trailer": trailer,
    }
    key = f"trailer-{algorithm}-{right}"
    sign(variables, "PUT", f"/checksums/{key}", headers, datetime.datetime.now(datetime.timezone.utc))
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(body[at : at + 65_536]), body[at : at + 65_536]) for at in range(0, len(body), 65_536)
    )
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(variables["AWS_ENDPOINT_URL"]).netloc)
    connection.request("PUT", f"/checksums/{key}", chunks + b"0\r\n" + f"{trailer}:{value}\r\n\r\n".encode(), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    assert (answer.status, "BadDigest" in text) == ((200, False) if right else (400, True)), text
    if right:
        found = s3.get_object(Bucket="checksums", Key=key, ChecksumMode="ENABLED")
        assert found["Body"].read() == body
        assert (found[f"Checksum{algorithm}"], "ContentEncoding" in found) == (value, False)


@pytest.mark.parametrize(
    "algorithm, kind",
    [(name, "COMPOSITE") for name in ALGORITHMS if name != "CRC64NVME"]
    + [(name, "FULL_OBJECT") for name in ALGORITHMS[:3]],
)
def test_parts(s3, algorithm, kind):
    # Short of 5 MiB only in the last part, and little enough for a CRC in Python.
    bodies = [bytes([number]) * (5 * MIB) for number in (1, 2)] + [b"end"]
    name = f"Checksum{algorithm}"
    known = algorithm not in CRCS
    upload = {"Bucket": "checksums", "Key": f"parts-{algorithm}-{kind}"}
    made = s3.create_multipart_upload(**upload, ChecksumAlgorithm=algorithm, ChecksumType=kind)
    assert (made["ChecksumAlgorithm"], made["ChecksumType"]) == (algorithm, kind)
    upload["UploadId"] = made["UploadId"]
    parts = []
    for number, body in enumerate(bodies, 1):
        # Whatever the client sends, the server knows each part's checksum.
        sent = s3.upload_part(**upload, PartNumber=number, Body=body)
        if known:
            assert sent[name] == checksum(algorithm, body)
        parts.append({"PartNumber": number, "ETag": sent["ETag"], name: sent[name]})
    assert [part[name] for part in s3.list_parts(**upload)["Parts"]] == [part[name] for part in parts]
    with refused("InvalidPart"):
        s3.complete_multipart_upload(
            **upload, MultipartUpload={"Parts": [parts[0], {**parts[1], name: parts[0][name]}, parts[2]]}
        )
    with refused("BadDigest"):
        s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}, **{name: checksum(algorithm, b"x")})
    done = s3.complete_multipart_upload(
        **upload, MultipartUpload={"Parts": parts}, ChecksumType=kind, MpuObjectSize=10 * MIB + 3
    )
    if kind == "COMPOSITE":
        sums = b"".join(base64.b64decode(part[name]) for part in parts)
        assert done[name] == f"{checksum(algorithm, sums)}-3"
    elif known:
        assert done[name] == checksum(algorithm, b"".join(bodies))
    assert done["ChecksumType"] == kind
    head = s3.head_object(Bucket="checksums", Key=upload["Key"], ChecksumMode="ENABLED")
    assert (head[name], head["ChecksumType"]) == (done[name], kind)
    described = s3.get_object_attributes(
        Bucket="checksums", Key=upload["Key"], ObjectAttributes=["Checksum", "ObjectParts"]
    )
    assert (described["Checksum"][name], described["Checksum"]["ChecksumType"]) == (done[name], kind)
    assert [part["Size"] for part in described["ObjectParts"]["Parts"]] == [5 * MIB, 5 * MIB, 3]
    assert s3.get_object(Bucket="checksums", Key=upload["Key"])["Body"].read() == b"".join(bodies)


@pytest.mark.parametrize("algorithm", ["CRC32C", "CRC64NVME"])
def test_a_whole_made_of_parts_has_the_checksum_of_one_in_a_piece(s3, algorithm):
    """By copying ranges, so that the parts may be small enough for a CRC in Python: the last one
    alone is short.
    """
    body = b"".join(bytes([number]) * 1000 for number in range(7))
    s3.put_object(Bucket="checksums", Key="source", Body=body)
    upload = {"Bucket": "checksums", "Key": "combined"}
    upload["UploadId"] = s3.create_multipart_upload(**upload, ChecksumAlgorithm=algorithm, ChecksumType="FULL_OBJECT")[
        "UploadId"
    ]
    part = s3.upload_part_copy(
        **upload, PartNumber=1, CopySource="checksums/source", CopySourceRange="bytes=1000-5999"
    )["CopyPartResult"]
    name = f"Checksum{algorithm}"
    assert part[name] == checksum(algorithm, body[1000:6000])
    parts = [{"PartNumber": 1, "ETag": part["ETag"], name: part[name]}]
    done = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    assert done[name] == checksum(algorithm, body[1000:6000])


@pytest.mark.parametrize(
    "asked",
    [
        dict(ChecksumAlgorithm="SHA1", ChecksumType="FULL_OBJECT"),
        dict(ChecksumAlgorithm="CRC64NVME", ChecksumType="COMPOSITE"),
    ],
)
def test_what_does_not_go_together_is_refused(s3, asked):
    with refused("InvalidRequest", 400):
        s3.create_multipart_upload(Bucket="checksums", Key="never", **asked)


def test_a_copy_may_ask_for_a_checksum(s3):
    s3.put_object(Bucket="checksums", Key="plain", Body=b"hello", ChecksumAlgorithm="CRC32")
    copied = s3.copy_object(Bucket="checksums", Key="copy", CopySource="checksums/plain", ChecksumAlgorithm="SHA256")
    assert copied["CopyObjectResult"]["ChecksumSHA256"] == checksum("SHA256", b"hello")
    kept = s3.copy_object(Bucket="checksums", Key="kept", CopySource="checksums/plain")
    assert kept["CopyObjectResult"]["ChecksumCRC32"] == checksum("CRC32", b"hello")


def test_files_sent_in_parts_have_one(s3, tmp_path):
    """By boto3's transfer manager with its defaults."""
    (tmp_path / "up").write_bytes(b"x" * (17 * MIB))
    s3.upload_file(str(tmp_path / "up"), "checksums", "file")
    head = s3.head_object(Bucket="checksums", Key="file", ChecksumMode="ENABLED")
    assert "ChecksumCRC32" in head, head
    s3.download_file("checksums", "file", str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == (tmp_path / "up").read_bytes()
