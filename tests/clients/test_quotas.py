"""Quotas, priorities and turns between users, over the real clients; conftest.py has the quotas."""

import json

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from house import eventually
from test_team import Key, refusal


@pytest.fixture(scope="module")
def keys(house, jobs):
    def add(name):
        flags = ("--role", "user", "--write", f"s3://tests/{name}/")
        return Key(house, json.loads(house.shoal("keys", "add", name, *flags, "--json").stdout))

    keys = {name: add(name) for name in ("quin", "rick", "sam")}
    jobs.put("quotas/run.sh", "sleep 300")
    yield keys
    for name in keys:
        house.shoal("keys", "remove", name)


def request(jobs, name, instances=1, **changes):
    return jobs.request(
        name,
        AlgorithmSpecification={
            "TrainingImage": "shoal/host",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/sh", "/opt/ml/input/data/code/run.sh"],
        },
        InputDataConfig=[jobs.channel("code", "quotas")],
        OutputDataConfig={"S3OutputPath": "s3://tests/quin/"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": instances, "VolumeSizeInGB": 1},
        **changes,
    )


def quotas(house, key=None):
    variables = {**house.variables, "SHOAL_DATA_DIR": str(house.data)}
    if key:
        variables |= house.variables_for_clients()
        variables |= {"AWS_ACCESS_KEY_ID": key.id, "AWS_SECRET_ACCESS_KEY": key.secret}
    shown = json.loads(house.shoal("quotas", "--json", env=variables).stdout)["Quotas"]
    return {quota["Name"]: quota for quota in shown}


def test_a_job_beyond_a_quota_waits_with_the_quotas_name(house, jobs, keys):
    quin = keys["quin"].client("sagemaker")
    first, second = request(jobs, "first"), request(jobs, "second")
    for each in (first, second):
        quin.create_training_job(**each)
    first, second = first["TrainingJobName"], second["TrainingJobName"]

    def why(client=quin):
        return client.describe_training_job(TrainingJobName=second)["SecondaryStatusTransitions"][-1]

    waiting = "Waiting for the quota user:quin: needs 1 running job, 0 of 1 left; 1st in the queue"
    assert (why()["Status"], why()["StatusMessage"]) == ("Pending", waiting)
    assert waiting in house.shoal("jobs", "show", second).stdout
    used = quotas(house, keys["quin"])
    assert "user:owner" not in used and "user:sam" not in used, "a user sees own quotas"
    assert used["user:quin"]["Jobs"] == {"Used": 1, "Limit": 1}
    assert used["user:quin"]["Instances"] == {"Used": 1, "Limit": 2}
    # Another user's job, and one of the owner's with a tag of its own quota, are not held back.
    narrow = {"Tags": [{"Key": "team", "Value": "narrow"}]}
    one, two = (request(jobs, name, **narrow) for name in ("narrow", "narrower"))
    owner = house.client("sagemaker")
    for each in (one, two):
        owner.create_training_job(**each)
    message = owner.describe_training_job(TrainingJobName=two["TrainingJobName"])["SecondaryStatusTransitions"][-1]
    assert message["StatusMessage"].startswith("Waiting for the quota tag:team=narrow: needs 1 instance, 0 of 1 left")
    assert quotas(house)["tag:team=narrow"]["Instances"] == {"Used": 1, "Limit": 1}
    for each in (two, one):
        owner.stop_training_job(TrainingJobName=each["TrainingJobName"])
    quin.stop_training_job(TrainingJobName=first)
    eventually(lambda: why()["Status"] != "Pending")
    eventually(lambda: quotas(house)["user:quin"]["UsedInstanceSeconds"] > 0)
    quin.stop_training_job(TrainingJobName=second)


def test_jobs_with_a_tag_that_has_logged_too_much_are_refused(house, jobs):
    owner, tags = house.client("sagemaker"), [{"Key": "team", "Value": "chatty"}]
    name = jobs.command("seq 1000", Tags=tags)
    jobs.wait(name)

    def used():
        return quotas(house)["tag:team=chatty"]

    eventually(lambda: used()["LogBytes"]["Used"] > 1024, seconds=30)
    # Its model and its output.
    assert used()["StoredBytes"]["Limit"] == 1 << 30 and used()["StoredBytes"]["Used"] > 0
    error = refusal(owner.create_training_job, **request(jobs, "another", Tags=tags))
    assert error["Code"] == "ResourceLimitExceeded"
    assert error["Message"].startswith("The quota 'tag:team=chatty' is 1024 bytes of log lines, and")
    owner.delete_training_job(TrainingJobName=name)
    eventually(lambda: used()["LogBytes"]["Used"] == 0, seconds=30)


def test_what_no_wait_would_help_is_refused(jobs, keys):
    quin = keys["quin"].client("sagemaker")
    error = refusal(quin.create_training_job, **request(jobs, "large", instances=3))
    assert error["Code"] == "ResourceLimitExceeded"
    assert error["Message"].startswith("The quota 'user:quin' is 2 instances at once")
    urgent = request(jobs, "urgent", Tags=[{"Key": "shoal:priority", "Value": "4"}])
    error = refusal(quin.create_training_job, **urgent)
    assert (error["Code"], "permits at most 3" in error["Message"]) == ("ValidationException", True)


def test_who_asks_too_often_is_asked_to_wait(house, keys):
    variables = house.variables_for_clients()

    def client(service, **retries):
        return boto3.client(
            service,
            endpoint_url=variables["AWS_ENDPOINT_URL"],
            region_name=variables["AWS_REGION"],
            aws_access_key_id=keys["rick"].id,
            aws_secret_access_key=keys["rick"].secret,
            config=Config(retries=retries),
        )

    def codes(service, call):
        hasty = client(service, total_max_attempts=1)
        found = []
        for _ in range(8):
            try:
                getattr(hasty, call)()
                found.append("")
            except ClientError as error:
                found.append(error.response["Error"]["Code"])
        return set(found)

    assert "ThrottlingException" in codes("sagemaker", "list_training_jobs")
    assert "SlowDown" in codes("s3", "list_buckets")
    # The clients' own retries get through.
    assert client("sts", mode="standard", total_max_attempts=8).get_caller_identity()["Arn"].endswith(":user/rick")


def test_who_stores_too_much_stores_no_more(house, keys):
    sam = keys["sam"].client("s3")
    place = {"Bucket": "tests", "Key": "sam/large"}
    sam.put_object(**place, Body=b"x" * 100_000)

    def refused():
        try:
            sam.put_object(Bucket="tests", Key="sam/small", Body=b"x")
        except ClientError as error:
            return error.response["Error"]
        return None

    error = eventually(refused, seconds=30)
    assert error["Code"] == "QuotaExceeded" and "65536 bytes" in error["Message"], error
    assert quotas(house)["user:sam"]["StoredBytes"]["Limit"] == 65536
    sam.delete_object(**place)
    eventually(lambda: refused() is None, seconds=30)
