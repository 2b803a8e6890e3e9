"""STS and IAM: who one is, temporary keys of assumed roles, roles and what they may do."""

import datetime

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

ROLE = "arn:aws:iam::{account}:role/service-role/Trainer"


def connect(house, service, keys):
    variables = house.variables_for_clients()
    return boto3.client(
        service,
        endpoint_url=variables["AWS_ENDPOINT_URL"],
        region_name=variables["AWS_REGION"],
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys.get("SessionToken"),
        config=Config(retries={"max_attempts": 1}),
    )


@pytest.fixture(scope="module")
def account(house):
    return house.client("sts").get_caller_identity()["Account"]


def assume(house, account, **options):
    return house.client("sts").assume_role(RoleArn=ROLE.format(account=account), RoleSessionName="me@home", **options)


def code_of(call):
    with pytest.raises(ClientError) as error:
        call()
    return error.value.response["Error"]["Code"]


def test_the_caller_is_an_assumed_role(house, account):
    """The SDKs' get_execution_role takes the role's name from it."""
    identity = house.client("sts").get_caller_identity()
    assert identity["Arn"] == f"arn:aws:sts::{account}:assumed-role/ShoalRole/shoal"
    role = house.client("iam").get_role(RoleName="ShoalRole")["Role"]
    assert role["Arn"] == f"arn:aws:iam::{account}:role/ShoalRole"
    assert role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"] == {"Service": "sagemaker.amazonaws.com"}


def test_temporary_keys_have_the_owners_rights_for_a_time(house, account):
    before = datetime.datetime.now(datetime.timezone.utc)
    answer = assume(house, account, DurationSeconds=900)
    keys = answer["Credentials"]
    assert answer["AssumedRoleUser"]["Arn"] == f"arn:aws:sts::{account}:assumed-role/Trainer/me@home"
    lasts = (keys["Expiration"] - before).total_seconds()
    assert 898 <= lasts <= 960, lasts
    identity = connect(house, "sts", keys).get_caller_identity()
    assert identity["Arn"] == answer["AssumedRoleUser"]["Arn"]
    assert identity["UserId"] == answer["AssumedRoleUser"]["AssumedRoleId"]
    s3 = connect(house, "s3", keys)
    s3.create_bucket(Bucket="of-a-session")
    s3.put_object(Bucket="of-a-session", Key="a", Body=b"x")
    assert s3.get_object(Bucket="of-a-session", Key="a")["Body"].read() == b"x"
    assert "TrainingJobSummaries" in connect(house, "sagemaker", keys).list_training_jobs()
    # A session may go on to another role.
    onward = connect(house, "sts", keys).assume_role(RoleArn=ROLE.format(account=account), RoleSessionName="onward")
    assert connect(house, "sts", onward["Credentials"]).get_caller_identity()["Arn"].endswith("/onward")
    # Two sessions have nothing in common.
    other = assume(house, account)["Credentials"]
    assert len({keys[name] for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")} & set(other.values())) == 0


def test_they_outlive_a_restart(make_house):
    house = make_house()
    account = house.client("sts").get_caller_identity()["Account"]
    keys = assume(house, account)["Credentials"]
    house.stop()
    house.start()
    assert connect(house, "sts", keys).get_caller_identity()["Account"] == account


@pytest.mark.parametrize(
    "change, sts, sagemaker, s3",
    [
        (dict(SessionToken=None), "InvalidClientTokenId", "UnrecognizedClientException", "InvalidToken"),
        (dict(SessionToken="00"), "InvalidClientTokenId", "UnrecognizedClientException", "InvalidToken"),
        (dict(SecretAccessKey="wrong"), "SignatureDoesNotMatch", "InvalidSignatureException", "SignatureDoesNotMatch"),
        (
            dict(AccessKeyId="ASIA0000000000000000"),
            "InvalidClientTokenId",
            "UnrecognizedClientException",
            "InvalidAccessKeyId",
        ),
    ],
)
def test_keys_that_are_not_whole_open_nothing(house, account, change, sts, sagemaker, s3):
    keys = {**assume(house, account)["Credentials"], **change}
    assert code_of(connect(house, "sts", keys).get_caller_identity) == sts
    assert code_of(connect(house, "sagemaker", keys).list_training_jobs) == sagemaker
    assert code_of(connect(house, "s3", keys).list_buckets) == s3


def test_a_token_of_another_session_is_refused(house, account):
    one, other = (assume(house, account)["Credentials"] for _ in range(2))
    assert (
        code_of(connect(house, "sts", {**one, "SessionToken": other["SessionToken"]}).get_caller_identity)
        == "InvalidClientTokenId"
    )
    token = one["SessionToken"]
    for changed in (token[:-1], token + "0", token[:70] + ("1" if token[70] == "0" else "0") + token[71:]):
        assert (
            code_of(connect(house, "sts", {**one, "SessionToken": changed}).get_caller_identity)
            == "InvalidClientTokenId"
        )


@pytest.mark.parametrize(
    "arguments, code",
    [
        (dict(RoleArn="arn:aws:iam::999999999999:role/Trainer"), "AccessDenied"),
        (dict(RoleArn="arn:aws:iam::{account}:user/somebody"), "ValidationError"),
        (dict(DurationSeconds=899), "ValidationError"),
        (dict(DurationSeconds=43_201), "ValidationError"),
        (dict(RoleSessionName="with space"), "ValidationError"),
        (dict(Policy='{"Version": "2012-10-17", "Statement": []}'), "MalformedPolicyDocument"),
        (dict(PolicyArns=[{"arn": "arn:aws:iam::aws:policy/ReadOnlyAccess"}]), "ValidationError"),
    ],
)
def test_what_cannot_be_assumed(house, account, arguments, code):
    arguments = {"RoleArn": ROLE, "RoleSessionName": "me", **arguments}
    arguments["RoleArn"] = arguments["RoleArn"].format(account=account)
    client = house.client("sts", config=Config(parameter_validation=False))
    assert code_of(lambda: client.assume_role(**arguments)) == code


def test_roles(house, account):
    iam = house.client("iam")
    roles = [role for page in iam.get_paginator("list_roles").paginate() for role in page["Roles"]]
    assert [role["Arn"] for role in roles] == [f"arn:aws:iam::{account}:role/ShoalRole"]
    assert iam.list_roles(PathPrefix="/service-role/")["Roles"] == []
    # Every name stands for the one account.
    assert iam.get_role(RoleName="AnyRole")["Role"]["Arn"].endswith(":role/AnyRole")
    assert code_of(lambda: iam.list_roles(Marker="made-up")) == "ValidationError"


def test_simulated_policies_allow_everything(house, account):
    """SDK v3 asks before every training job."""
    iam = house.client("iam")
    actions = [f"s3:Action{number}" for number in range(7)]
    asked = dict(PolicySourceArn=f"arn:aws:iam::{account}:role/Any", ActionNames=actions)
    for size in (1, 3, 100):
        pages = iam.get_paginator("simulate_principal_policy").paginate(**asked, PaginationConfig={"PageSize": size})
        found = [
            (result["EvalActionName"], result["EvalDecision"]) for page in pages for result in page["EvaluationResults"]
        ]
        assert found == [(action, "allowed") for action in actions]
    resources = ["arn:aws:s3:::a", "arn:aws:s3:::b"]
    found = iam.simulate_principal_policy(**{**asked, "ActionNames": actions[:2]}, ResourceArns=resources)[
        "EvaluationResults"
    ]
    assert [(result["EvalActionName"], result["EvalResourceName"]) for result in found] == [
        (a, r) for a in actions[:2] for r in resources
    ]
    assert (
        code_of(
            lambda: iam.simulate_principal_policy(**{**asked, "PolicySourceArn": "arn:aws:iam::999999999999:role/Any"})
        )
        == "NoSuchEntity"
    )
