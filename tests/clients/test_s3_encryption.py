"""Contents under the owner's keys (SSE-KMS) and under customers' (SSE-C): nothing of them lies on the
disk as it is, and what is read is what was written.
"""

import base64
import io
import os
import tarfile

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError
from house import BUCKET, House, eventually
from jobs import Jobs

MARK = b"plaintext that must not lie on the disk. "
SMALL, LONG = MARK * 20, MARK * 300_000
KEY, OTHER = b"k" * 32, b"o" * 32
ARN = "arn:aws:kms:us-east-1:123456789012:key/"
CUSTOMER = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": KEY}
KMS = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/team"}
PARTS = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)

#: A key management service of sorts, with a record of its calls.
COMMAND = """#!/bin/sh
echo "$*" >> {log}
exec tr 'A-Za-z' 'N-ZA-Mn-za-m'
"""

#: A role that reads and writes, without the right to decrypt.
POLICY = """{"Statement": {"Effect": "Allow", "Action": ["s3:*", "kms:GenerateDataKey"], "Resource": "*"}}"""

ALL = """{"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}"""


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys")
    team, command = keys / "team.key", keys / "kms"
    team.write_text("0b" * 32)
    team.chmod(0o600)
    command.write_text(COMMAND.format(log=keys / "log"))
    command.chmod(0o700)
    settings = (
        f'[kms.team]\nfile = "{team}"\n[kms."aws/s3"]\ncommand = ["{command}"]\n'
        f"[role.NoKeys]\npolicies = ['{POLICY}']\n[role.tests]\npolicies = ['{ALL}']\n"
    )
    house = House(settings=settings)
    house.keys = keys
    yield house
    house.close()


@pytest.fixture(scope="module")
def s3(keyed):
    client = keyed.client("s3")
    client.create_bucket(Bucket=BUCKET)
    return client


def plain_files(house):
    """Files of the data directory that have the contents as they are."""
    found = []
    for folder, _, names in os.walk(house.data):
        for name in names:
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    content = file.read()
            except OSError:
                continue
            if MARK in content:
                found.append(os.path.relpath(os.path.join(folder, name), house.data))
    return found


def refused(call, **arguments):
    with pytest.raises(ClientError) as error:
        call(**arguments)
    answer = error.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


def body(s3, key, **arguments):
    return s3.get_object(Bucket=BUCKET, Key=key, **arguments)["Body"].read()


def test_under_a_key_of_the_owner(keyed, s3):
    put = s3.put_object(Bucket=BUCKET, Key="small", Body=SMALL, **KMS, BucketKeyEnabled=True)
    shown = ("aws:kms", ARN + "team", True)
    fields = ("ServerSideEncryption", "SSEKMSKeyId", "BucketKeyEnabled")
    assert tuple(put[name] for name in fields) == shown
    s3.upload_fileobj(io.BytesIO(LONG), BUCKET, "long", ExtraArgs=KMS, Config=PARTS)
    head = s3.head_object(Bucket=BUCKET, Key="long")
    assert (head["SSEKMSKeyId"], head["ContentLength"]) == (ARN + "team", len(LONG))
    assert body(s3, "small") == SMALL and body(s3, "long") == LONG
    for start, end in [(0, 0), (5 << 20, (5 << 20) + 9), (len(LONG) - 5, len(LONG) - 1), ((1 << 20) - 3, 1 << 20)]:
        assert body(s3, "long", Range=f"bytes={start}-{end}") == LONG[start : end + 1]
    # Without a name it is the key aws/s3, whose command is run once for many objects.
    for number in range(3):
        put = s3.put_object(Bucket=BUCKET, Key=f"unnamed-{number}", Body=SMALL, ServerSideEncryption="aws:kms")
        assert put["SSEKMSKeyId"] == ARN + "aws/s3"
        assert "x-shoal-no-effect" not in put["ResponseMetadata"]["HTTPHeaders"]
    assert (keyed.keys / "log").read_text() == "wrap aws/s3\n"
    assert refused(s3.put_object, Bucket=BUCKET, Key="x", Body=b"", **{**KMS, "SSEKMSKeyId": "none"}) == (
        400,
        "KMS.NotFoundException",
    )
    # Copies are encrypted as they are asked for.
    source = {"Bucket": BUCKET, "Key": "long"}
    for key, arguments, expected in [
        ("same", KMS, ("aws:kms", ARN + "team")),
        ("under-another", {"ServerSideEncryption": "aws:kms"}, ("aws:kms", ARN + "aws/s3")),
    ]:
        copied = s3.copy_object(Bucket=BUCKET, Key=key, CopySource=source, **arguments)
        assert (copied["ServerSideEncryption"], copied["SSEKMSKeyId"]) == expected
        assert body(s3, key) == LONG
    rule = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": ARN + "team"}
    configuration = {"Rules": [{"ApplyServerSideEncryptionByDefault": rule, "BucketKeyEnabled": False}]}
    s3.put_bucket_encryption(Bucket=BUCKET, ServerSideEncryptionConfiguration=configuration)
    assert s3.get_bucket_encryption(Bucket=BUCKET)["ServerSideEncryptionConfiguration"] == configuration
    assert s3.put_object(Bucket=BUCKET, Key="default", Body=SMALL)["SSEKMSKeyId"] == ARN + "team"
    assert plain_files(keyed) == []
    assert keyed.shoal("verify", "--data-dir", str(keyed.data)).returncode == 0
    # Rotation: the new key wraps, both unwrap.
    (keyed.keys / "team.key").write_text("0c" * 32 + "\n" + "0b" * 32)
    keyed.stop()
    keyed.start()
    client = keyed.client("s3")
    assert body(client, "small") == SMALL and body(client, "default") == SMALL
    client.delete_bucket_encryption(Bucket=BUCKET)
    assert client.put_object(Bucket=BUCKET, Key="plain", Body=b"x")["ServerSideEncryption"] == "AES256"


def in_role(keyed, **narrowed):
    """A client with keys of the role that may not decrypt."""
    arn = "arn:aws:iam::123456789012:role/NoKeys"
    given = keyed.client("sts").assume_role(RoleArn=arn, RoleSessionName="me", **narrowed)["Credentials"]
    variables = keyed.variables_for_clients()
    return boto3.client(
        "s3",
        endpoint_url=variables["AWS_ENDPOINT_URL"],
        region_name=variables["AWS_REGION"],
        aws_access_key_id=given["AccessKeyId"],
        aws_secret_access_key=given["SecretAccessKey"],
        aws_session_token=given["SessionToken"],
    )


def test_a_role_needs_rights_on_the_key(keyed):
    owner, s3 = keyed.client("s3"), in_role(keyed)
    owner.put_object(Bucket=BUCKET, Key="for-roles", Body=SMALL, **KMS)
    s3.put_object(Bucket=BUCKET, Key="by-role", Body=SMALL, **KMS)
    assert refused(s3.get_object, Bucket=BUCKET, Key="for-roles") == (403, "AccessDenied")
    # A range that S3 ignores goes no other way.
    assert refused(s3.get_object, Bucket=BUCKET, Key="for-roles", Range="lines=1-2") == (403, "AccessDenied")
    assert s3.head_object(Bucket=BUCKET, Key="for-roles")["ContentLength"] == len(SMALL)
    # Sums of the content say what it is.
    named = {"Bucket": BUCKET, "Key": "for-roles"}
    assert refused(s3.head_object, **named, ChecksumMode="ENABLED")[0] == 403
    assert refused(s3.get_object_attributes, **named, ObjectAttributes=["Checksum"]) == (403, "AccessDenied")
    assert s3.get_object_attributes(**named, ObjectAttributes=["ObjectSize"])["ObjectSize"] == len(SMALL)
    # Who may not encrypt adds no part to an encrypted upload.
    part = {"Bucket": BUCKET, "Key": "parts", "PartNumber": 1}
    part["UploadId"] = owner.create_multipart_upload(Bucket=BUCKET, Key="parts", **KMS)["UploadId"]
    without_keys = in_role(keyed, Policy=POLICY.replace("kms:GenerateDataKey", "kms:ListKeys"))
    assert refused(without_keys.upload_part, **part, Body=SMALL) == (403, "AccessDenied")
    owner.put_object(Bucket=BUCKET, Key="plain-source", Body=b"x")
    copied = {**part, "CopySource": f"{BUCKET}/plain-source"}
    assert refused(without_keys.upload_part_copy, **copied) == (403, "AccessDenied")
    assert s3.upload_part(**part, Body=SMALL)["ServerSideEncryption"] == "aws:kms"


def test_under_a_key_of_the_customer(keyed):
    s3 = keyed.client("s3")
    put = s3.put_object(Bucket=BUCKET, Key="own", Body=SMALL, **CUSTOMER)
    assert put["SSECustomerAlgorithm"] == "AES256" and "ServerSideEncryption" not in put
    s3.upload_fileobj(io.BytesIO(LONG), BUCKET, "own-parts", ExtraArgs=CUSTOMER, Config=PARTS)
    assert body(s3, "own", **CUSTOMER) == SMALL and body(s3, "own-parts", **CUSTOMER) == LONG
    wrong = {**CUSTOMER, "SSECustomerKey": OTHER}
    for call in (s3.get_object, s3.head_object):
        assert refused(call, Bucket=BUCKET, Key="own")[0] == 400
        assert refused(call, Bucket=BUCKET, Key="own", **wrong)[0] == 403
        assert refused(call, Bucket=BUCKET, Key="plain", **CUSTOMER)[0] == 400
    assert refused(s3.get_object, Bucket=BUCKET, Key="own") == (400, "InvalidRequest")
    assert refused(s3.get_object, Bucket=BUCKET, Key="own", **wrong) == (403, "AccessDenied")
    # boto3 computes the MD5, unless it is given.
    given = {**CUSTOMER, "SSECustomerKey": base64.b64encode(KEY).decode(), "SSECustomerKeyMD5": "eA=="}
    assert refused(s3.get_object, Bucket=BUCKET, Key="own", **given) == (
        400,
        "InvalidArgument",
    )
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="p", **CUSTOMER)["UploadId"]
    part = {"Bucket": BUCKET, "Key": "p", "UploadId": upload, "PartNumber": 1, "Body": b"x"}
    assert refused(s3.upload_part, **part) == (400, "InvalidRequest")
    assert refused(s3.upload_part, **part, **wrong) == (400, "InvalidArgument")
    s3.upload_part(**part, **CUSTOMER)
    source = {"CopySource": {"Bucket": BUCKET, "Key": "own-parts"}, "CopySourceSSECustomerAlgorithm": "AES256"}
    copy = {"Bucket": BUCKET, "Key": "own-copy", **source}
    assert refused(s3.copy_object, **copy, CopySourceSSECustomerKey=OTHER) == (403, "AccessDenied")
    s3.copy_object(**copy, CopySourceSSECustomerKey=KEY, **wrong)
    assert body(s3, "own-copy", **wrong) == LONG
    s3.upload_part_copy(
        Bucket=BUCKET,
        Key="p",
        UploadId=upload,
        PartNumber=1,
        CopySourceRange="bytes=5-9",
        CopySourceSSECustomerKey=KEY,
        **source,
        **CUSTOMER,
    )
    etag = s3.list_parts(Bucket=BUCKET, Key="p", UploadId=upload)["Parts"][0]["ETag"]
    chosen = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    s3.complete_multipart_upload(Bucket=BUCKET, Key="p", UploadId=upload, MultipartUpload=chosen)
    assert body(s3, "p", **CUSTOMER) == LONG[5:10]
    assert plain_files(keyed) == []


def test_a_job_reads_and_writes_encrypted_objects(keyed):
    jobs, s3 = Jobs(keyed), keyed.client("s3")
    s3.upload_fileobj(io.BytesIO(LONG), BUCKET, "train/data", ExtraArgs=KMS, Config=PARTS)
    script = "cat /opt/ml/input/data/train/data > /opt/ml/model/model; sleep 3; echo trained"
    request = jobs.request("sealed")
    request["AlgorithmSpecification"] = {
        "TrainingImage": "shoal/host",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["sh", "-c", script],
    }
    uri = f"s3://{BUCKET}/train/"
    request["InputDataConfig"] = [
        {
            "ChannelName": "train",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}},
        }
    ]
    output = request["OutputDataConfig"]["S3OutputPath"]
    request["OutputDataConfig"] = {"S3OutputPath": output, "KmsKeyId": "alias/none"}
    assert refused(jobs.sagemaker.create_training_job, **request) == (400, "ValidationException")
    request["OutputDataConfig"]["KmsKeyId"] = ARN + "team"
    answer = jobs.sagemaker.create_training_job(**request)
    assert "x-shoal-no-effect" not in answer["ResponseMetadata"]["HTTPHeaders"]
    name = request["TrainingJobName"]
    job = jobs.wait(name)
    assert job["TrainingJobStatus"] == "Completed", job
    assert job["OutputDataConfig"]["KmsKeyId"] == ARN + "team"
    model = job["ModelArtifacts"]["S3ModelArtifacts"].removeprefix(f"s3://{BUCKET}/")
    found = s3.get_object(Bucket=BUCKET, Key=model)
    assert found["SSEKMSKeyId"] == ARN + "team"
    with tarfile.open(fileobj=io.BytesIO(found["Body"].read())) as archive:
        assert archive.extractfile("model").read() == LONG
    # What it read is removed with its instances.
    eventually(lambda: plain_files(keyed) == [])
    # A customer's key does not come with a job.
    s3.put_object(Bucket=BUCKET, Key="train/own", Body=b"x", **CUSTOMER)
    request["TrainingJobName"] = name + "-2"
    with pytest.raises(ClientError) as error:
        jobs.sagemaker.create_training_job(**request)
    assert "key of the customer (SSE-C)" in error.value.response["Error"]["Message"]


def test_a_key_that_is_not_there_ends_the_start_with_a_sentence(keyed):
    (keyed.keys / "open.key").write_text("0b" * 32)
    (keyed.keys / "open.key").chmod(0o644)
    data = keyed.keys / "data"
    data.mkdir()
    (data / "shoal.toml").write_text(f'[kms.open]\nfile = "{keyed.keys / "open.key"}"\n')
    started = keyed.shoal("serve", "--data-dir", str(data), "--listen", "127.0.0.1:0", check=False, timeout=60)
    assert started.returncode != 0 and "chmod 600" in started.stderr, started.stderr
    checked = keyed.shoal("doctor", "--data-dir", str(data), check=False)
    assert "key open" in checked.stdout and "chmod 600" in checked.stdout
    checked = keyed.shoal("doctor", "--data-dir", str(keyed.data), check=False)
    assert "key aws/s3" in checked.stdout and "key team" in checked.stdout
