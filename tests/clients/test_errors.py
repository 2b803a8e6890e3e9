"""What AWS refuses at creation is refused at creation, with its code and a message that names
the field.
"""

import pytest
from botocore.exceptions import ClientError, WaiterError
from jobs import ROLE, XGBOOST


def host(**changes):
    return {"TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["true"], **changes}


def s3_channel(uri):
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    return [{"ChannelName": "train", "DataSource": {"S3DataSource": source}}]


RESOURCES = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}


@pytest.mark.parametrize(
    "changes, code, named",
    [
        ({"TrainingJobName": "no_underscores"}, "ValidationException", "trainingJobName"),
        ({"TrainingJobName": "x" * 64}, "ValidationException", "trainingJobName"),
        ({"RoleArn": "arn:aws:iam::1:role/too-short-account"}, "ValidationException", "roleArn"),
        ({"ResourceConfig": {**RESOURCES, "InstanceType": "ml.none.large"}}, "ValidationException", "instanceType"),
        ({"ResourceConfig": {**RESOURCES, "InstanceType": "ml.p4d.24xlarge"}}, "ResourceLimitExceeded", "GPU"),
        ({"AlgorithmSpecification": host(TrainingImage="no-such-image")}, "ValidationException", "trainingImage"),
        (
            {"AlgorithmSpecification": host(ContainerEntrypoint=["x" * 300])},
            "ValidationException",
            "containerEntrypoint",
        ),
        (
            {
                "AlgorithmSpecification": {
                    "TrainingImage": XGBOOST.replace("1.7-1", "9.9-9"),
                    "TrainingInputMode": "File",
                }
            },
            "ValidationException",
            "1.7-1",
        ),
        ({"InputDataConfig": s3_channel("s3://tests/nothing/here")}, "ValidationException", "No S3 objects found"),
        ({"InputDataConfig": s3_channel("s3://no-such-bucket/x")}, "ValidationException", "no-such-bucket"),
        ({"OutputDataConfig": {"S3OutputPath": "s3://no-such-bucket/x"}}, "ValidationException", "s3OutputPath"),
        ({"HyperParameters": {"a": "x" * 2501}}, "ValidationException", "hyperParameters"),
        (
            {"StoppingCondition": {"MaxRuntimeInSeconds": 60 * 60 * 24 * 29}},
            "ValidationException",
            "axRuntimeInSeconds",
        ),
    ],
)
def test_creation_refuses(jobs, changes, code, named):
    request = {**jobs.request("refused"), "AlgorithmSpecification": host(), **changes}
    with pytest.raises(ClientError) as error:
        jobs.sagemaker.create_training_job(**request)
    answer = error.value.response["Error"]
    assert answer["Code"] == code, answer
    assert named in answer["Message"], answer
    with pytest.raises(ClientError):
        jobs.describe(request["TrainingJobName"])


def test_names_are_unique(jobs):
    request = {**jobs.request("twice"), "AlgorithmSpecification": host()}
    jobs.sagemaker.create_training_job(**request)
    for _ in ("while it runs", "when it is over"):
        with pytest.raises(jobs.sagemaker.exceptions.ResourceInUse):
            jobs.sagemaker.create_training_job(**request)
        jobs.completed(request["TrainingJobName"])


@pytest.mark.parametrize("operation", ["describe_training_job", "stop_training_job"])
def test_unknown_jobs(jobs, operation):
    with pytest.raises(ClientError) as error:
        getattr(jobs.sagemaker, operation)(TrainingJobName="nobody-knows-it")
    answer = error.value.response["Error"]
    assert (answer["Code"], answer["Message"]) == ("ValidationException", "Requested resource not found.")


def test_a_taken_name_is_the_first_complaint(jobs):
    """Whatever else the request has become unfit for: its data is gone, and the instance is none
    that this machine can be.
    """
    name = jobs.script("sleep 30")
    request = jobs.request(
        "taken",
        TrainingJobName=name,
        AlgorithmSpecification=host(TrainingImage="no-such-image"),
        InputDataConfig=s3_channel("s3://tests/gone/"),
    )
    request["ResourceConfig"]["InstanceType"] = "ml.p4d.24xlarge"
    with pytest.raises(jobs.sagemaker.exceptions.ResourceInUse):
        jobs.sagemaker.create_training_job(**request)
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    with pytest.raises(jobs.sagemaker.exceptions.ResourceInUse):
        jobs.sagemaker.create_training_job(**request)


def test_a_job_that_is_over_cannot_be_stopped(jobs):
    name = jobs.script("true")
    jobs.completed(name)
    with pytest.raises(ClientError) as error:
        jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert error.value.response["Error"]["Code"] == "ValidationException"


def test_the_waiter_fails_on_an_unknown_job(jobs):
    with pytest.raises(WaiterError):
        waiter = jobs.sagemaker.get_waiter("training_job_completed_or_stopped")
        waiter.wait(TrainingJobName="nobody-knows-it", WaiterConfig={"Delay": 1, "MaxAttempts": 2})


def test_the_role_is_echoed_whatever_it_is(jobs):
    request = {**jobs.request("role"), "AlgorithmSpecification": host(), "RoleArn": ROLE.replace("tests", "path/other")}
    jobs.sagemaker.create_training_job(**request)
    assert jobs.completed(request["TrainingJobName"])["RoleArn"].endswith("role/path/other")
