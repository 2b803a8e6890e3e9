"""What is accepted without effect is told, and a strict server refuses it."""

import pytest
from botocore.exceptions import ClientError
from house import BUCKET
from jobs import ROLE, Jobs

VPC = {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}


def headers_of(answer):
    return answer["ResponseMetadata"]["HTTPHeaders"].get("x-shoal-no-effect")


def test_fields_without_effect_are_noted(house, jobs):
    request = jobs.request("noted", VpcConfig=VPC, EnableInterContainerTrafficEncryption=True)
    request["AlgorithmSpecification"] = {
        "TrainingImage": "shoal/host",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["echo", "trained"],
    }
    request["ResourceConfig"]["VolumeKmsKeyId"] = "alias/mine"
    answer = jobs.sagemaker.create_training_job(**request)
    assert headers_of(answer) == "ResourceConfig.VolumeKmsKeyId, VpcConfig, EnableInterContainerTrafficEncryption"
    assert jobs.wait(request["TrainingJobName"])["TrainingJobStatus"] == "Completed"
    lines = jobs.logs(request["TrainingJobName"])["algo-1"]
    notes = [line for line in lines if "has no effect" in line]
    assert [note.split()[1] for note in notes] == [
        "ResourceConfig.VolumeKmsKeyId",
        "VpcConfig",
        "EnableInterContainerTrafficEncryption",
    ]
    assert lines.index(notes[-1]) < next(at for at, line in enumerate(lines) if line == "trained")
    assert (
        headers_of(house.client("sts").assume_role(RoleArn=ROLE, RoleSessionName="me", ExternalId="12")) == "ExternalId"
    )
    assert headers_of(jobs.sagemaker.list_training_jobs()) is None
    model = {"ModelName": "noted", "ExecutionRoleArn": ROLE, "PrimaryContainer": {"Image": "i"}, "VpcConfig": VPC}
    assert headers_of(jobs.sagemaker.create_model(**model)) == "VpcConfig"


def test_a_strict_server_refuses_them(new_house):
    house = new_house("--strict")
    jobs = Jobs(house)
    name = jobs.command("true")
    assert jobs.wait(name)["TrainingJobStatus"] == "Completed", "a role is required, and taken"
    with pytest.raises(ClientError) as refused:
        jobs.command("true", VpcConfig=VPC, ProfilerConfig={"DisableProfiler": True})
    error = refused.value.response["Error"]
    assert (
        error["Code"] == "ValidationException"
        and "VpcConfig (" in error["Message"]
        and "ProfilerConfig" not in error["Message"]
    ), error
    with pytest.raises(ClientError) as refused:
        house.client("sts").assume_role(RoleArn=ROLE, RoleSessionName="me", ExternalId="12")
    assert "ExternalId" in str(refused.value)
    model = {"ModelName": "refused", "ExecutionRoleArn": ROLE, "PrimaryContainer": {"Image": "i"}}
    with pytest.raises(ClientError) as refused:
        jobs.sagemaker.create_model(**model, EnableNetworkIsolation=True)
    error = refused.value.response["Error"]
    assert "EnableNetworkIsolation (" in error["Message"] and "ExecutionRoleArn" not in error["Message"], error
    jobs.sagemaker.create_model(**model)
    s3 = house.client("s3")
    with pytest.raises(ClientError) as refused:
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"x", ServerSideEncryption="aws:kms")
    error = refused.value.response["Error"]
    assert error["Code"] == "InvalidRequest" and "x-amz-server-side-encryption (" in error["Message"], error
    assert headers_of(s3.put_object(Bucket=BUCKET, Key="k", Body=b"x", ServerSideEncryption="AES256")) is None
