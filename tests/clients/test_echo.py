"""DescribeTrainingJob gives back the whole request, every member that a client may have set."""

from jobs import ROLE

BUCKET = "s3://tests"


def test_every_member_comes_back(jobs):
    jobs.put("echo/data.txt", "x")
    source = {"S3DataType": "S3Prefix", "S3Uri": f"{BUCKET}/echo/", "S3DataDistributionType": "ShardedByS3Key"}
    request = {
        **jobs.request("echo"),
        "RoleArn": ROLE,
        "HyperParameters": {"a": "1", "empty": "", "text": 'quotes " and ü'},
        "AlgorithmSpecification": {
            "TrainingImage": "shoal/host",
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": r"loss=(\S+)"}],
            "EnableSageMakerMetricsTimeSeries": False,
            "ContainerEntrypoint": ["/bin/sh", "-c"],
            "ContainerArguments": ["echo loss=1"],
        },
        "InputDataConfig": [
            {
                "ChannelName": "train",
                "DataSource": {"S3DataSource": source},
                "ContentType": "text/plain",
                "CompressionType": "None",
                "RecordWrapperType": "None",
                "InputMode": "File",
            }
        ],
        "OutputDataConfig": {"S3OutputPath": f"{BUCKET}/out", "CompressionType": "GZIP"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 5},
        "StoppingCondition": {"MaxRuntimeInSeconds": 100},
        "EnableNetworkIsolation": True,
        "EnableInterContainerTrafficEncryption": False,
        "EnableManagedSpotTraining": False,
        "DebugHookConfig": {"S3OutputPath": f"{BUCKET}/debug", "CollectionConfigurations": []},
        "ProfilerConfig": {"S3OutputPath": f"{BUCKET}/profile", "DisableProfiler": False},
        "Environment": {"COLOUR": "red"},
        "RetryStrategy": {"MaximumRetryAttempts": 1},
    }
    jobs.sagemaker.create_training_job(**request, Tags=[{"Key": "team", "Value": "us"}])
    description = jobs.completed(request["TrainingJobName"])
    request["OutputDataConfig"]["KmsKeyId"] = ""
    for member, sent in request.items():
        assert description[member] == sent, member
    assert "Tags" not in description


def test_what_sdks_need_is_there_though_it_was_not_sent(jobs):
    request = jobs.request("sparse")
    algorithm = {"TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["true"]}
    jobs.sagemaker.create_training_job(**request, AlgorithmSpecification=algorithm)
    it = jobs.completed(request["TrainingJobName"])
    assert it["HyperParameters"] == {}
    assert it["OutputDataConfig"]["KmsKeyId"] == ""
    assert it["EnableNetworkIsolation"] is False and it["EnableManagedSpotTraining"] is False
    assert all(transition["StatusMessage"] for transition in it["SecondaryStatusTransitions"])


def test_the_platform_supplies_the_metrics_of_built_in_images(jobs):
    jobs.put("echo/train.csv", "1,2\n0,1\n")
    name = jobs.xgboost("echo/train.csv", num_round=1)
    definitions = {it["Name"]: it["Regex"] for it in jobs.describe(name)["AlgorithmSpecification"]["MetricDefinitions"]}
    assert definitions["validation:auc"] == r".*\[[0-9]+\].*#011validation-auc:(\S+)"
    jobs.completed(name)
