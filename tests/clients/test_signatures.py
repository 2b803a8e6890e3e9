"""Who is let in: requests signed with this server's keys, at about this time."""

import datetime

import boto3
import botocore.auth
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

CALLS = {
    "sagemaker": lambda client: client.list_training_jobs(),
    "logs": lambda client: client.describe_log_streams(logGroupName="/aws/sagemaker/TrainingJobs"),
    "sts": lambda client: client.get_caller_identity(),
    "iam": lambda client: client.get_role(RoleName="any"),
    "s3": lambda client: client.list_buckets(),
}
SERVICES = pytest.mark.parametrize("service", CALLS)


def refusal(client):
    with pytest.raises(ClientError) as error:
        CALLS[client.meta.service_model.service_name](client)
    return error.value.response["Error"]


def client(house, service, **changes):
    variables = house.variables_for_clients()
    options = {
        "endpoint_url": variables["AWS_ENDPOINT_URL"],
        "aws_access_key_id": variables["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": variables["AWS_SECRET_ACCESS_KEY"],
        "region_name": variables["AWS_REGION"],
        **changes,
    }
    return boto3.client(service, **options)


@SERVICES
def test_the_keys_of_the_server_open_it(house, service):
    assert CALLS[service](client(house, service))["ResponseMetadata"]["HTTPStatusCode"] == 200


@SERVICES
def test_a_wrong_secret(house, service):
    expected = "InvalidSignatureException" if service in ("sagemaker", "logs") else "SignatureDoesNotMatch"
    assert refusal(client(house, service, aws_secret_access_key="0" * 40))["Code"] == expected


@SERVICES
def test_an_unknown_key(house, service):
    expected = {
        "sagemaker": "UnrecognizedClientException",
        "logs": "UnrecognizedClientException",
        "s3": "InvalidAccessKeyId",
    }
    assert refusal(client(house, service, aws_access_key_id="AKIANOBODY"))["Code"] == expected.get(
        service, "InvalidClientTokenId"
    )


@SERVICES
@pytest.mark.parametrize("minutes", [-20, 20])
def test_a_clock_that_is_off(house, service, minutes, monkeypatch):
    now = botocore.auth.get_current_datetime() + datetime.timedelta(minutes=minutes)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: now)
    expected = {
        "sagemaker": "InvalidSignatureException",
        "logs": "InvalidSignatureException",
        "s3": "RequestTimeTooSkewed",
    }
    assert refusal(client(house, service))["Code"] == expected.get(service, "SignatureDoesNotMatch")


@pytest.mark.parametrize(
    "service, call, expected",
    [
        ("sagemaker", CALLS["sagemaker"], "MissingAuthenticationTokenException"),
        ("s3", lambda s3: s3.put_object(Bucket="any", Key="key", Body=b"x"), "AccessDenied"),
    ],
)
def test_no_signature_at_all(house, service, call, expected):
    with pytest.raises(ClientError) as error:
        call(client(house, service, config=Config(signature_version=UNSIGNED)))
    assert error.value.response["Error"]["Code"] == expected


def test_an_operation_that_is_not_served(house):
    with pytest.raises(ClientError) as error:
        client(house, "sagemaker").list_endpoints()
    answer = error.value.response["Error"]
    assert answer["Code"] == "UnknownOperationException" and "ListEndpoints" in answer["Message"]
