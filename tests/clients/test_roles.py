"""Declared roles with policies, and policies of S3 buckets, over the real clients."""

import json

import pytest
from botocore.exceptions import ClientError
from jobs import Jobs
from test_team import Key, refusal

ACCOUNT = "123456789012"

ROLES = """
[role.Trainer]
policies = ["TRAINER"]
[role.Lister]
policies = ['''{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sagemaker:List*", "Resource": "*"}}''']
"""

TRAINER = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": ["sagemaker:Create*", "sagemaker:AddTags"],
            "Resource": f"arn:aws:sagemaker:*:{ACCOUNT}:*",
            "Condition": {"StringEquals": {"aws:RequestTag/team": "vision"}},
        },
        {
            "Effect": "Allow",
            "Action": ["sagemaker:Describe*", "sagemaker:Stop*", "sagemaker:Delete*"],
            "Resource": "*",
            "Condition": {"StringEquals": {"aws:ResourceTag/team": "vision"}},
        },
        {"Effect": "Allow", "Action": "s3:*", "Resource": ["arn:aws:s3:::tests/vision/*"]},
        {
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": "arn:aws:s3:::tests",
            "Condition": {"StringLike": {"s3:prefix": "vision/*"}},
        },
        {"Effect": "Deny", "Action": "s3:Delete*", "Resource": "arn:aws:s3:::tests/vision/kept/*"},
        {"Effect": "Allow", "Action": "iam:PassRole", "Resource": f"arn:aws:iam::{ACCOUNT}:role/Trainer"},
    ],
}


@pytest.fixture(scope="module")
def roles(make_house, tmp_path_factory):
    policy = tmp_path_factory.mktemp("roles") / "trainer.json"
    policy.write_text(json.dumps(TRAINER))
    house = make_house(settings=ROLES.replace("TRAINER", str(policy)))
    return house, Jobs(house)


def session(house, key, role, **narrowed):
    role = {"RoleArn": f"arn:aws:iam::{ACCOUNT}:role/{role}", "RoleSessionName": "me", **narrowed}
    credentials = key.client("sts").assume_role(**role)["Credentials"]
    return {service: key.client(service, **credentials) for service in ("sagemaker", "s3", "sts")}


@pytest.fixture(scope="module")
def owner(roles):
    house, _ = roles
    keys = house.variables_for_clients()
    answer = {"AccessKeyId": keys["AWS_ACCESS_KEY_ID"], "SecretAccessKey": keys["AWS_SECRET_ACCESS_KEY"]}
    return Key(house, answer)


def request(jobs, name, role="Trainer", tags=()):
    return jobs.request(
        name,
        RoleArn=f"arn:aws:iam::{ACCOUNT}:role/{role}",
        AlgorithmSpecification={
            "TrainingImage": "shoal/host",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/true"],
        },
        OutputDataConfig={"S3OutputPath": "s3://tests/vision/"},
        Tags=[{"Key": key, "Value": value} for key, value in tags],
    )


def test_a_role_that_is_not_declared_is_refused(roles, owner):
    house, jobs = roles
    sagemaker, iam = house.client("sagemaker"), house.client("iam")
    error = refusal(sagemaker.create_training_job, **request(jobs, "a", role="Other"))
    assert error["Code"] == "ValidationException"
    assert error["Message"].startswith(f"Could not assume role arn:aws:iam::{ACCOUNT}:role/Other. Please ensure")
    model = {"ModelName": "m", "ExecutionRoleArn": f"arn:aws:iam::{ACCOUNT}:role/Other"}
    assert refusal(sagemaker.create_model, **model)["Code"] == "ValidationException"
    assert refusal(iam.get_role, RoleName="Other")["Code"] == "NoSuchEntity"
    assert iam.get_role(RoleName="Trainer")["Role"]["Arn"].endswith(":role/Trainer")
    assert {role["RoleName"] for role in iam.list_roles()["Roles"]} == {"Trainer", "Lister"}
    assume = {"RoleArn": f"arn:aws:iam::{ACCOUNT}:role/Other", "RoleSessionName": "me"}
    error = refusal(owner.client("sts").assume_role, **assume)
    assert (error["Code"], "sts:AssumeRole" in error["Message"]) == ("AccessDenied", True)


def test_a_session_does_what_its_roles_policies_permit(roles, owner):
    house, jobs = roles
    trainer, lister = session(house, owner, "Trainer"), session(house, owner, "Lister")
    assert trainer["sts"].get_caller_identity()["Arn"].endswith(":assumed-role/Trainer/me")
    plain, tagged = request(jobs, "plain"), request(jobs, "tagged", tags=[("team", "vision")])
    error = refusal(trainer["sagemaker"].create_training_job, **plain)
    assert error["Code"] == "AccessDeniedException"
    assert "assumed-role/Trainer/me is not authorized to perform: sagemaker:CreateTrainingJob" in error["Message"]
    assert "because no policy of the role or the session allows it" in error["Message"]
    passes = {**tagged, "RoleArn": tagged["RoleArn"].replace("Trainer", "Lister")}
    assert "iam:PassRole on resource" in refusal(trainer["sagemaker"].create_training_job, **passes)["Message"]
    arn = trainer["sagemaker"].create_training_job(**tagged)["TrainingJobArn"]
    name = {"TrainingJobName": tagged["TrainingJobName"]}
    assert trainer["sagemaker"].describe_training_job(**name)["TrainingJobArn"] == arn
    house.client("sagemaker").create_training_job(**plain)
    other = {"TrainingJobName": plain["TrainingJobName"]}
    assert refusal(trainer["sagemaker"].describe_training_job, **other)["Code"] == "AccessDeniedException"
    assert refusal(trainer["sagemaker"].list_training_jobs)["Code"] == "AccessDeniedException"
    assert len(lister["sagemaker"].list_training_jobs()["TrainingJobSummaries"]) == 2
    assert refusal(lister["sagemaker"].describe_training_job, **name)["Code"] == "AccessDeniedException"


def test_a_session_is_narrowed_by_the_policy_that_it_is_opened_with(roles, owner):
    house, jobs = roles
    jobs.put("vision/kept/b", "b")
    allow = {"Effect": "Allow", "Action": ["s3:Get*", "sts:*"], "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allow]}, indent=2)
    narrowed = session(house, owner, "Trainer", Policy=policy)
    assert narrowed["s3"].get_object(Bucket="tests", Key="vision/kept/b")["Body"].read() == b"b"
    assert refusal(narrowed["s3"].get_object, Bucket="tests", Key="other/a")["Code"] == "AccessDenied", "the role's"
    assert refusal(narrowed["s3"].put_object, Bucket="tests", Key="vision/c")["Code"] == "AccessDenied"
    assert refusal(narrowed["sagemaker"].list_training_jobs)["Code"] == "AccessDeniedException"
    assume = {"RoleArn": f"arn:aws:iam::{ACCOUNT}:role/Trainer", "RoleSessionName": "me"}
    error = refusal(owner.client("sts").assume_role, **assume, Policy='{"Statement": []}')
    assert (error["Code"], "Statement is empty" in error["Message"]) == ("MalformedPolicyDocument", True)
    long = json.dumps({"Statement": [allow, {**allow, "Resource": "arn:aws:s3:::" + 2000 * "x"}]})
    assert refusal(owner.client("sts").assume_role, **assume, Policy=long)["Code"] in (
        "PackedPolicyTooLarge",
        "ValidationError",
    )


def test_a_session_opens_of_s3_what_its_roles_policies_permit(roles, owner):
    house, jobs = roles
    jobs.put("other/a", "a")
    s3, nothing = session(house, owner, "Trainer")["s3"], session(house, owner, "Lister")["s3"]
    for key in ("vision/a", "vision/kept/a"):
        s3.put_object(Bucket="tests", Key=key, Body=b"a")
        assert s3.get_object(Bucket="tests", Key=key)["Body"].read() == b"a"
        assert refusal(nothing.get_object, Bucket="tests", Key=key)["Code"] == "AccessDenied"
    for call, arguments in (
        (s3.get_object, {"Key": "other/a"}),
        (s3.put_object, {"Key": "other/b", "Body": b""}),
        (s3.copy_object, {"Key": "vision/b", "CopySource": {"Bucket": "tests", "Key": "other/a"}}),
        (s3.delete_object, {"Key": "vision/kept/a"}),
        (s3.delete_objects, {"Delete": {"Objects": [{"Key": "vision/a"}, {"Key": "vision/kept/a"}]}}),
        (s3.list_objects_v2, {}),
        (s3.list_objects_v2, {"Prefix": "other/"}),
    ):
        assert refusal(call, Bucket="tests", **arguments)["Code"] == "AccessDenied", arguments
    listed = s3.list_objects_v2(Bucket="tests", Prefix="vision/")["Contents"]
    assert {"vision/a", "vision/kept/a"} <= {it["Key"] for it in listed}
    s3.copy_object(Bucket="tests", Key="vision/b", CopySource={"Bucket": "tests", "Key": "vision/a"})
    s3.delete_objects(Bucket="tests", Delete={"Objects": [{"Key": "vision/a"}, {"Key": "vision/b"}]})


def test_a_buckets_policy_adds_to_keys_and_takes_from_them(roles):
    house, jobs = roles
    flags = ("--role", "user", "--read", "s3://tests/own/", "--write", "s3://tests/own/", "--json")
    ben = Key(house, json.loads(house.shoal("keys", "add", "ben", *flags).stdout))
    jobs.put("shared/a", "a")
    jobs.put("own/kept", "kept")
    s3, owner = ben.client("s3"), house.client("s3")
    bucket = {"Bucket": "tests"}
    assert refusal(s3.get_object, **bucket, Key="shared/a")["Code"] == "AccessDenied"
    assert refusal(owner.get_bucket_policy, **bucket)["Code"] == "NoSuchBucketPolicy"
    arn = f"arn:aws:iam::{ACCOUNT}:user/ben"
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"AWS": arn},
                "Action": "s3:GetObject",
                "Resource": "arn:aws:s3:::tests/shared/*",
            },
            {
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:DeleteObject",
                "Resource": "arn:aws:s3:::tests/own/kept",
            },
        ],
    }
    assert refusal(s3.put_bucket_policy, **bucket, Policy=json.dumps(policy))["Code"] == "AccessDenied"
    owner.put_bucket_policy(**bucket, Policy=json.dumps(policy))
    assert json.loads(owner.get_bucket_policy(**bucket)["Policy"]) == policy
    assert owner.get_bucket_policy_status(**bucket)["PolicyStatus"]["IsPublic"] is False
    assert s3.get_object(**bucket, Key="shared/a")["Body"].read() == b"a"
    assert refusal(s3.put_object, **bucket, Key="shared/a", Body=b"")["Code"] == "AccessDenied"
    for client in (s3, owner):
        assert refusal(client.delete_object, **bucket, Key="own/kept")["Code"] == "AccessDenied"
    # What a job reads, its creator may read.
    reading = request(jobs, "reading")
    reading["InputDataConfig"] = [jobs.channel("code", "shared/")]
    reading["OutputDataConfig"] = {"S3OutputPath": "s3://tests/own/"}
    ben.client("sagemaker").create_training_job(**reading)
    public = {**policy["Statement"][0], "Principal": "*"}
    error = refusal(owner.put_bucket_policy, **bucket, Policy=json.dumps({"Statement": [public]}))
    assert (error["Code"], "BlockPublicPolicy" in error["Message"]) == ("AccessDenied", True)
    elsewhere = {**policy["Statement"][0], "Resource": "arn:aws:s3:::other/*"}
    for wrong in ({"Statement": [elsewhere]}, {"Statement": [{"Effect": "Allow"}]}, {}):
        assert refusal(owner.put_bucket_policy, **bucket, Policy=json.dumps(wrong))["Code"] == "MalformedPolicy"
    owner.delete_bucket_policy(**bucket)
    with pytest.raises(ClientError):
        s3.get_object(**bucket, Key="shared/a")
    owner.delete_object(**bucket, Key="own/kept")
