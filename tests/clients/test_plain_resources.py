"""Models and experiments: resources that are stored and shown, by an unmodified client and over
a restart.
"""

import pytest
from botocore.exceptions import ClientError
from jobs import Jobs


def refused(call, **arguments):
    with pytest.raises(ClientError) as error:
        call(**arguments)
    return error.value.response["Error"]["Code"], error.value.response["Error"]["Message"]


def test_models_and_experiments_outlive_a_restart(new_house):
    house = new_house()
    jobs = Jobs(house)
    role = "arn:aws:iam::123456789012:role/SageMakerRole"
    container = {"Image": "registry/serve:1", "ModelDataUrl": "s3://my-bucket/model.tar.gz", "Environment": {"A": "b"}}
    request = {"ModelName": "Titanic", "PrimaryContainer": container, "ExecutionRoleArn": role}
    tags = [{"Key": "team", "Value": "trees"}]
    arn = jobs.sagemaker.create_model(**request, Tags=tags)["ModelArn"]
    code, text = refused(jobs.sagemaker.create_model, **request)
    assert (code, text) == ("ValidationException", f'Cannot create already existing model "{arn}".')
    experiment = jobs.sagemaker.create_experiment(ExperimentName="Survival", Tags=tags)["ExperimentArn"]
    jobs.sagemaker.update_experiment(ExperimentName="survival", Description="who survived")
    for number in range(3):
        jobs.sagemaker.create_model(**{**request, "ModelName": f"other-{number}"})
    house.stop()
    house.start()
    jobs.connect()
    model = jobs.sagemaker.describe_model(ModelName="Titanic")
    assert model["PrimaryContainer"] == {**container, "Mode": "SingleModel"}
    assert (model["ModelArn"], model["ExecutionRoleArn"], model["EnableNetworkIsolation"]) == (arn, role, False)
    pages = jobs.sagemaker.get_paginator("list_models").paginate(
        SortBy="CreationTime", PaginationConfig={"PageSize": 3}
    )
    assert [len(page["Models"]) for page in pages] == [3, 1]
    listed = jobs.sagemaker.list_models(NameContains="Tita")["Models"]
    assert listed == [{"ModelName": "Titanic", "ModelArn": arn, "CreationTime": model["CreationTime"]}]
    shown = jobs.sagemaker.describe_experiment(ExperimentName="SURVIVAL")
    assert (shown["ExperimentName"], shown["DisplayName"], shown["Description"]) == (
        "Survival",
        "Survival",
        "who survived",
    )
    assert shown["LastModifiedTime"] > shown["CreationTime"]
    for tagged in (arn, experiment):
        assert jobs.sagemaker.list_tags(ResourceArn=tagged)["Tags"] == tags
        jobs.sagemaker.add_tags(ResourceArn=tagged, Tags=[{"Key": "stage", "Value": ""}])
        jobs.sagemaker.delete_tags(ResourceArn=tagged, TagKeys=["team"])
        assert jobs.sagemaker.list_tags(ResourceArn=tagged)["Tags"] == [{"Key": "stage", "Value": ""}]
    jobs.sagemaker.delete_model(ModelName="Titanic")
    assert refused(jobs.sagemaker.describe_model, ModelName="Titanic") == (
        "ValidationException",
        f'Could not find model "{arn}".',
    )
    assert jobs.sagemaker.delete_experiment(ExperimentName="Survival")["ExperimentArn"] == experiment
    assert refused(jobs.sagemaker.describe_experiment, ExperimentName="Survival")[0] == "ResourceNotFound"
