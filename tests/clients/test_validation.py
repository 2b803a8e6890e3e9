"""What AWS checks before it answers CreateTrainingJob, as one table: the change of a sound
request, the code, what the message names.

The client's own checks are off, so that the server sees all of it. What clients send and Shoal
has no use for is accepted and echoed.
"""

import botocore.config
import pytest
from botocore.exceptions import ClientError
from house import BUCKET
from jobs import ROLE

S3 = f"s3://{BUCKET}/x"
HOST = {"TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["true"]}
RESOURCES = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
RULE = {
    "RuleConfigurationName": "r",
    "RuleEvaluatorImage": "rules",
    "RuleParameters": {"rule_to_invoke": "LossNotDecreasing"},
}
GROUP = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "InstanceGroupName": "a"}


def algorithm(**changes):
    return {"AlgorithmSpecification": {**HOST, **changes}}


def resources(**changes):
    return {"ResourceConfig": {**RESOURCES, **changes}}


def stopping(**seconds):
    return {"StoppingCondition": {"MaxRuntimeInSeconds": 100, **seconds}}


def channel(name="data", source=None, **changes):
    """`source` changes the S3 data source, or is the whole source if it names another kind."""
    source = source or {}
    s3 = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/valid/", **source}
    whole = source if any(key[0] in "FD" and key.endswith("Source") for key in source) else {"S3DataSource": s3}
    return {"ChannelName": name, "DataSource": whole, **changes}


def inputs(*channels):
    return {"InputDataConfig": list(channels)}


def metrics(*pairs):
    return algorithm(MetricDefinitions=[{"Name": name, "Regex": regex} for name, regex in pairs])


EFS = {"FileSystemId": "fs-12345678", "FileSystemAccessMode": "ro", "FileSystemType": "EFS", "DirectoryPath": "/d"}

REFUSED = [
    # Name, role, sizes.
    ({"TrainingJobName": "under_score"}, "trainingJobName"),
    ({"TrainingJobName": "-dash"}, "trainingJobName"),
    ({"TrainingJobName": "x" * 64}, "trainingJobName"),
    ({"RoleArn": "tests"}, "roleArn"),
    ({"RoleArn": ROLE.replace("arn:aws:", "arn:aws-cn:")}, "roleArn"),
    ({"HyperParameters": {f"k{n}": "v" for n in range(101)}}, "hyperParameters"),
    ({"HyperParameters": {"k" * 257: "v"}}, "hyperParameters"),
    ({"HyperParameters": {"k": "v" * 2501}}, "hyperParameters"),
    ({"HyperParameters": {"k": "a\0b"}}, "hyperParameters"),
    ({"Environment": {"1k": "v"}}, "environment"),
    ({"Environment": {"k": "v" * 513}}, "environment"),
    ({"Environment": {f"k{n}": "v" for n in range(101)}}, "environment"),
    ({"Environment": {"k": "\0"}}, "environment"),
    # Algorithm.
    ({"AlgorithmSpecification": None}, "algorithmSpecification"),
    (algorithm(TrainingImage=None), "algorithmSpecification"),
    (algorithm(AlgorithmName="mine"), "algorithmSpecification"),
    (algorithm(TrainingImage="nowhere/nothing:1"), "trainingImage"),
    (algorithm(TrainingImage="x" * 256), "trainingImage"),
    (algorithm(TrainingInputMode="Stream"), "trainingInputMode"),
    (algorithm(ContainerEntrypoint=[]), "containerEntrypoint"),
    (algorithm(ContainerEntrypoint=["x" * 257]), "containerEntrypoint"),
    (algorithm(ContainerArguments=["x"] * 101), "containerArguments"),
    (algorithm(TrainingImageConfig={"TrainingRepositoryAccessMode": "Vpc"}), "trainingRepositoryAccessMode"),
    (metrics(("m", "(x)"), ("m", "(y)")), "metricDefinitions.2.member.name"),
    (metrics(("m", "no group")), "metricDefinitions.1.member.regex"),
    (metrics(("m", "(open")), "metricDefinitions.1.member.regex"),
    (metrics(("m", "(x)" * 167)), "metricDefinitions.1.member.regex"),
    (metrics(*((f"m{n}", "(x)") for n in range(41))), "metricDefinitions"),
    # Channels.
    (inputs(), "inputDataConfig"),
    (inputs(*(channel(f"c{n}") for n in range(21))), "inputDataConfig"),
    (inputs(channel(), channel()), "inputDataConfig.2.member.channelName"),
    (inputs(channel(name="a/b")), "inputDataConfig.1.member.channelName"),
    (inputs(channel(name="..")), "inputDataConfig.1.member.channelName"),
    (inputs(channel(source={"S3Uri": "s3://tests/nothing/here"})), "No S3 objects found"),
    (inputs(channel(source={"S3Uri": "s3://no-such-bucket/x"})), "no-such-bucket"),
    (inputs(channel(source={"S3Uri": "https://tests.s3.amazonaws.com/x"})), "s3Uri"),
    (inputs(channel(source={"S3DataType": "Folder"})), "s3DataType"),
    (inputs(channel(source={"S3DataType": "AugmentedManifestFile", "AttributeNames": ["a"]})), "s3DataType"),
    (inputs(channel(source={"AttributeNames": ["a"]})), "attributeNames"),
    (inputs(channel(source={"S3DataDistributionType": "Random"})), "s3DataDistributionType"),
    (inputs(channel(source={"InstanceGroupNames": ["a"]})), "instanceGroupNames"),
    (inputs(channel(source={"FileSystemDataSource": EFS})), "fileSystemDataSource"),
    (inputs({"ChannelName": "data", "DataSource": {}}), "dataSource"),
    (inputs(channel(InputMode="Tape")), "inputDataConfig.1.member.inputMode"),
    (inputs(channel(CompressionType="Gzip")), "compressionType"),
    (inputs(channel(CompressionType="Zip")), "compressionType"),
    (inputs(channel(RecordWrapperType="RecordIO")), "recordWrapperType"),
    (inputs(channel(ShuffleConfig={})), "shuffleConfig.seed"),
    # Output.
    ({"OutputDataConfig": {"S3OutputPath": "s3://no-such-bucket/x"}}, "s3OutputPath"),
    ({"OutputDataConfig": {"S3OutputPath": "here"}}, "s3OutputPath"),
    ({"OutputDataConfig": {"S3OutputPath": S3, "KmsKeyId": "x" * 2049}}, "kmsKeyId"),
    ({"OutputDataConfig": {"S3OutputPath": S3, "KmsKeyId": "alias/none"}}, "outputDataConfig.kmsKeyId'"),
    ({"OutputDataConfig": {"S3OutputPath": S3, "CompressionType": "ZIP"}}, "compressionType"),
    # Resources.
    ({"ResourceConfig": None}, "resourceConfig"),
    (resources(InstanceType="ml.none.large"), "instanceType"),
    (resources(InstanceType=None), "instanceType"),
    (resources(InstanceCount=0), "instanceCount"),
    (resources(InstanceCount=-1), "instanceCount"),
    (resources(VolumeSizeInGB=-1), "volumeSizeInGB"),
    (resources(VolumeSizeInGB=16385), "volumeSizeInGB"),
    (resources(InstanceType="ml.g4dn.xlarge", VolumeKmsKeyId="key"), "volumeKmsKeyId"),
    (resources(KeepAlivePeriodInSeconds=21601), "keepAlivePeriodInSeconds"),
    (resources(InstanceGroups=[GROUP]), "instanceGroups"),
    ({"ResourceConfig": {"InstanceGroups": [GROUP, GROUP]}}, "instanceGroups.2.member.instanceGroupName"),
    (resources(TrainingPlanArn="arn:aws:sagemaker:us-east-1:123456789012:training-plan/a"), "trainingPlanArn"),
    ({"VpcConfig": {"SecurityGroupIds": [], "Subnets": ["subnet-1"]}}, "vpcConfig.securityGroupIds"),
    ({"VpcConfig": {"SecurityGroupIds": ["sg-1"]}}, "vpcConfig.subnets"),
    # How long, how often.
    (stopping(MaxRuntimeInSeconds=0), "maxRuntimeInSeconds"),
    (stopping(MaxRuntimeInSeconds=28 * 86400 + 1), "maxRuntimeInSeconds"),
    (stopping(MaxPendingTimeInSeconds=1799), "maxPendingTimeInSeconds"),
    (stopping(MaxWaitTimeInSeconds=200), "maxWaitTimeInSeconds"),
    ({"EnableManagedSpotTraining": True}, "maxWaitTimeInSeconds"),
    ({"EnableManagedSpotTraining": True, **stopping(MaxWaitTimeInSeconds=99)}, "maxWaitTimeInSeconds"),
    (
        {
            "EnableManagedSpotTraining": True,
            **stopping(MaxWaitTimeInSeconds=200),
            **resources(KeepAlivePeriodInSeconds=60),
        },
        "keepAlivePeriodInSeconds",
    ),
    ({"RetryStrategy": {"MaximumRetryAttempts": 0}}, "maximumRetryAttempts"),
    ({"RetryStrategy": {"MaximumRetryAttempts": 31}}, "maximumRetryAttempts"),
    ({"CheckpointConfig": {"S3Uri": "nowhere"}}, "checkpointConfig.s3Uri"),
    ({"CheckpointConfig": {"S3Uri": S3, "LocalPath": "relative"}}, "checkpointConfig.localPath"),
    # What watches.
    ({"DebugHookConfig": {"LocalPath": "/opt/ml/output/tensors"}}, "debugHookConfig.s3OutputPath"),
    ({"DebugHookConfig": {"S3OutputPath": S3, "LocalPath": "relative"}}, "debugHookConfig.localPath"),
    ({"DebugRuleConfigurations": [RULE]}, "debugHookConfig"),
    (
        {"DebugHookConfig": {"S3OutputPath": S3}, "DebugRuleConfigurations": [RULE, RULE]},
        "debugRuleConfigurations.2.member",
    ),
    ({"DebugHookConfig": {"S3OutputPath": S3}, "DebugRuleConfigurations": [RULE] * 21}, "debugRuleConfigurations"),
    ({"ProfilerConfig": {"DisableProfiler": False}}, "profilerConfig.s3OutputPath"),
    (
        {"ProfilerConfig": {"S3OutputPath": S3, "ProfilingIntervalInMilliseconds": 250}},
        "profilingIntervalInMilliseconds",
    ),
    ({"ProfilerConfig": {"DisableProfiler": True}, "ProfilerRuleConfigurations": [RULE]}, "profilerRuleConfigurations"),
    ({"ProfilerRuleConfigurations": [RULE, RULE]}, "profilerRuleConfigurations.2.member"),
    ({"TensorBoardOutputConfig": {"S3OutputPath": "here"}}, "tensorBoardOutputConfig.s3OutputPath"),
    ({"ExperimentConfig": {"ExperimentName": "under_score"}}, "experimentConfig.experimentName"),
    # Tags.
    ({"Tags": [{"Key": f"k{n}", "Value": ""} for n in range(51)]}, "tags"),
    ({"Tags": [{"Key": "aws:k", "Value": ""}]}, "tags.1.member.key"),
    ({"Tags": [{"Key": "k", "Value": "1"}, {"Key": "k", "Value": "2"}]}, "tags"),
    ({"Tags": [{"Key": "semi;colon", "Value": "1"}]}, "tags.1.member.key"),
    # What Shoal does not have.
    (
        {
            "ServerlessJobConfig": {
                "BaseModelArn": "arn:aws:sagemaker:us-east-1:aws:hub-content/h/Model/m",
                "JobType": "FineTuning",
            }
        },
        "serverlessJobConfig",
    ),
    (
        {"MlflowConfig": {"MlflowResourceArn": "arn:aws:sagemaker:us-east-1:123456789012:mlflow-app/app-1"}},
        "mlflowConfig",
    ),
]

ACCEPTED = {
    "spot": {"EnableManagedSpotTraining": True, **stopping(MaxWaitTimeInSeconds=100)},
    "debugger": {
        "DebugHookConfig": {
            "S3OutputPath": S3,
            "HookParameters": {"save_interval": "10"},
            "CollectionConfigurations": [{"CollectionName": "losses"}] * 2,
        },
        "DebugRuleConfigurations": [RULE],
        "TensorBoardOutputConfig": {"S3OutputPath": S3},
    },
    "profiler": {
        "ProfilerConfig": {"S3OutputPath": S3, "ProfilingIntervalInMilliseconds": 500},
        "ProfilerRuleConfigurations": [{**RULE, "RuleParameters": {"rule_to_invoke": "ProfilerReport"}}],
    },
    "no profiler": {"ProfilerConfig": {"DisableProfiler": True}},
    "network": {
        "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
        "EnableInterContainerTrafficEncryption": True,
    },
    "registry": {
        "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
        **algorithm(TrainingImageConfig={"TrainingRepositoryAccessMode": "Vpc"}),
    },
    "experiment": {"ExperimentConfig": {"ExperimentName": "e", "TrialName": "t", "RunName": "r"}},
    "remote debug": {"RemoteDebugConfig": {"EnableRemoteDebug": False}, "InfraCheckConfig": {"EnableInfraCheck": True}},
    "chaining": {"SessionChainingConfig": {"EnableSessionTagChaining": True}, "Tags": [{"Key": "k", "Value": ""}]},
    "retries": {"RetryStrategy": {"MaximumRetryAttempts": 30}},
    "warm pool": resources(KeepAlivePeriodInSeconds=1),
    "keys": {**resources(VolumeKmsKeyId="key"), "OutputDataConfig": {"S3OutputPath": S3, "KmsKeyId": ""}},
    "channels": inputs(
        channel(ShuffleConfig={"Seed": 7}, InputMode="FastFile", ContentType="text/csv", CompressionType="None")
    ),
    "one group": {
        "ResourceConfig": {"InstanceGroups": [GROUP], "VolumeSizeInGB": 1},
        **inputs(channel(source={"InstanceGroupNames": ["a"]})),
    },
    "longest": {**stopping(MaxRuntimeInSeconds=28 * 86400, MaxPendingTimeInSeconds=28 * 86400)},
}


@pytest.fixture(scope="module")
def client(house, jobs):
    jobs.put("valid/data.csv", "1,2\n")
    return house.client("sagemaker", config=botocore.config.Config(parameter_validation=False))


def request_with(jobs, changes):
    request = {**jobs.request("valid"), **algorithm(), **changes}
    return {name: value for name, value in request.items() if value is not None}


@pytest.mark.parametrize("changes, named", REFUSED, ids=[f"{named}-{n}" for n, (_, named) in enumerate(REFUSED)])
def test_refused(jobs, client, changes, named):
    request = request_with(jobs, changes)
    with pytest.raises(ClientError) as error:
        client.create_training_job(**request)
    answer = error.value.response["Error"]
    assert answer["Code"] == "ValidationException" and named in answer["Message"], answer
    with pytest.raises(ClientError):
        client.describe_training_job(TrainingJobName=request["TrainingJobName"])


@pytest.mark.parametrize("what", ACCEPTED)
def test_accepted_and_echoed(jobs, client, what):
    request = request_with(jobs, ACCEPTED[what])
    if what == "experiment":
        client.create_experiment(ExperimentName="e")
        client.create_trial_component(TrialComponentName="r")
    client.create_training_job(**request)
    description = jobs.describe(request["TrainingJobName"])

    def echoed(sent, told):
        if isinstance(sent, dict):
            return all(key in told and echoed(value, told[key]) for key, value in sent.items())
        if isinstance(sent, list):
            return len(sent) == len(told) and all(map(echoed, sent, told))
        return sent == told

    # AWS does not tell these again.
    told = {member: sent for member, sent in request.items() if member not in ("Tags", "SessionChainingConfig")}
    for member, sent in told.items():
        assert echoed(sent, description[member]), (member, sent, description[member])
    jobs.completed(request["TrainingJobName"])


def test_a_request_is_not_endless(client):
    with pytest.raises(ClientError) as error:
        client.create_training_job(TrainingJobName="x" * (5 << 20))
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 413


@pytest.mark.parametrize("operation", ["create_endpoint_config", "list_endpoints", "create_processing_job"])
def test_other_operations_are_unknown(client, operation):
    with pytest.raises(ClientError) as error:
        getattr(client, operation)()
    assert error.value.response["Error"]["Code"] == "UnknownOperationException"
