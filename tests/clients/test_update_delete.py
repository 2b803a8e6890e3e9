"""UpdateTrainingJob and DeleteTrainingJob."""

import pytest
from botocore.exceptions import ClientError
from house import BUCKET
from jobs import GROUP


@pytest.fixture(scope="module")
def running(jobs):
    name = jobs.script("sleep 300")
    jobs.until(name, "Training")
    yield name
    jobs.sagemaker.stop_training_job(TrainingJobName=name)


RULE = {
    "RuleConfigurationName": "one",
    "RuleEvaluatorImage": "rules",
    "RuleParameters": {"rule_to_invoke": "ProfilerReport"},
}


def test_updates_are_echoed(jobs, running):
    update = lambda **changes: jobs.sagemaker.update_training_job(TrainingJobName=running, **changes)
    profiler = {"S3OutputPath": f"s3://{BUCKET}/profile", "ProfilingIntervalInMilliseconds": 500}
    assert update(ProfilerConfig=profiler)["TrainingJobArn"] == jobs.describe(running)["TrainingJobArn"]
    update(ProfilerConfig={"ProfilingIntervalInMilliseconds": 1000}, ProfilerRuleConfigurations=[RULE])
    other = {**RULE, "RuleConfigurationName": "two"}
    changed = {**RULE, "RuleParameters": {"rule_to_invoke": "CPUBottleneck", "cpu_threshold": "80"}}
    update(
        ProfilerRuleConfigurations=[changed, other],
        ResourceConfig={"KeepAlivePeriodInSeconds": 60},
    )
    update(RemoteDebugConfig={"EnableRemoteDebug": True})
    now = jobs.describe(running)
    assert now["ProfilerConfig"] == {**profiler, "ProfilingIntervalInMilliseconds": 1000}
    assert now["ProfilerRuleConfigurations"] == [changed, other]
    assert now["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 60 and now["ResourceConfig"]["InstanceCount"] == 1
    assert now["RemoteDebugConfig"] == {"EnableRemoteDebug": True}


@pytest.mark.parametrize(
    "changes, named",
    [
        ({}, "at least one"),
        ({"ResourceConfig": {"KeepAlivePeriodInSeconds": 21601}}, "keepAlivePeriodInSeconds"),
        ({"ProfilerConfig": {"S3OutputPath": "https://elsewhere/x"}}, "profilerConfig.s3OutputPath"),
        ({"ProfilerConfig": {"ProfilingIntervalInMilliseconds": 123}}, "profilingIntervalInMilliseconds"),
        ({"ProfilerRuleConfigurations": [RULE, RULE]}, "profilerRuleConfigurations"),
        ({"ProfilerRuleConfigurations": [{**RULE, "RuleParameters": {}}]}, "rule_to_invoke"),
        ({"ProfilerRuleConfigurations": [{**RULE, "RuleParameters": {"rule_to_invoke": "AllZero"}}]}, "saved tensors"),
    ],
)
def test_updates_that_are_refused(jobs, running, changes, named):
    before = jobs.describe(running)
    with pytest.raises(ClientError) as error:
        jobs.sagemaker.update_training_job(TrainingJobName=running, **changes)
    answer = error.value.response["Error"]
    assert answer["Code"] == "ValidationException" and named in answer["Message"], answer
    after = jobs.describe(running)
    del before["ResponseMetadata"], after["ResponseMetadata"]
    assert before == after


def test_what_is_over_is_not_updated(jobs):
    name = jobs.script("true")
    jobs.completed(name)
    for unknown in (name, "nobody-knows-it"):
        with pytest.raises(ClientError) as error:
            jobs.sagemaker.update_training_job(TrainingJobName=unknown, ResourceConfig={"KeepAlivePeriodInSeconds": 0})
        assert error.value.response["Error"]["Code"] == "ValidationException"


def test_a_job_that_runs_is_not_deleted(jobs, running):
    with pytest.raises(jobs.sagemaker.exceptions.ResourceInUse) as error:
        jobs.sagemaker.delete_training_job(TrainingJobName=running)
    assert "InProgress" in error.value.response["Error"]["Message"]
    jobs.describe(running)


def test_nothing_of_a_deleted_job_is_left_and_its_name_is_free(jobs):
    def run(text):
        request = jobs.request("deleted", TrainingJobName="deleted-and-made-again")
        algorithm = {
            "TrainingImage": "shoal/host",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/sh", "-c", f"echo {text}; echo loss=1; echo x > /opt/ml/model/x"],
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        }
        jobs.sagemaker.create_training_job(**request, AlgorithmSpecification=algorithm)
        return request["TrainingJobName"]

    for text in ("first", "second", "third"):
        # The moment that it is over: its instances are still being released.
        name = run(text)
        jobs.completed(name)
        assert jobs.lines(name)[0] == text, "nothing of its predecessor is in its log"
        streams = jobs.logs_client.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")[
            "logStreams"
        ]
        assert len(streams) == 1
        arn = jobs.describe(name)["TrainingJobArn"]
        jobs.sagemaker.delete_training_job(TrainingJobName=name)
        assert jobs.logs(name) == {}
        for call in (
            lambda: jobs.describe(name),
            lambda: jobs.sagemaker.delete_training_job(TrainingJobName=name),
            lambda: jobs.sagemaker.stop_training_job(TrainingJobName=name),
            lambda: jobs.sagemaker.list_tags(ResourceArn=arn),
        ):
            with pytest.raises(ClientError) as error:
                call()
            answer = error.value.response["Error"]
            assert (answer["Code"], answer["Message"]) == ("ValidationException", "Requested resource not found.")
        assert jobs.sagemaker.list_training_jobs(NameContains=name)["TrainingJobSummaries"] == []
        assert jobs.artifact(name)["x"] == b"x\n", "objects in S3 are the user's"
