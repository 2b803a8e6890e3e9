"""A training job's life as boto3 sees it: description, transitions, logs, metrics, artifacts."""

import pytest
import traces

SCRIPT = """
echo "epoch 1 loss: 0.5"
echo "epoch 2 loss: 0.25"
echo "to stderr" >&2
printf 'a\\tb\\n'
echo weights > /opt/ml/model/weights.txt
mkdir -p /opt/ml/output/data && echo more > /opt/ml/output/data/report.txt
"""


@pytest.fixture(scope="module")
def name(jobs):
    # Until earlier tests' instances are gone, their memory is not free, and this job would be
    # Pending.
    traces.nothing_left(jobs.house)
    name = jobs.script(
        SCRIPT, metrics=[("loss", r"loss: (\S+)")], HyperParameters={"eta": "0.1"}, Environment={"COLOUR": "red"}
    )
    jobs.completed(name)
    return name


def test_the_request_is_echoed(jobs, name):
    it = jobs.describe(name)
    assert it["TrainingJobArn"] == f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{name}"
    assert it["HyperParameters"] == {"eta": "0.1"}
    assert it["Environment"] == {"COLOUR": "red"}
    assert it["AlgorithmSpecification"]["TrainingImage"] == "shoal/host"
    assert it["ResourceConfig"]["InstanceCount"] == 1
    assert it["StoppingCondition"]["MaxRuntimeInSeconds"] == 600
    assert it["InputDataConfig"][0]["ChannelName"] == "code"
    assert it["OutputDataConfig"]["KmsKeyId"] == ""


def test_transitions_and_times(jobs, name):
    it = jobs.describe(name)
    statuses = [transition["Status"] for transition in it["SecondaryStatusTransitions"]]
    assert statuses == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert all(transition["StatusMessage"] for transition in it["SecondaryStatusTransitions"])
    times = [transition["StartTime"] for transition in it["SecondaryStatusTransitions"]]
    assert times == sorted(times)
    assert it["CreationTime"] <= it["TrainingStartTime"] <= it["TrainingEndTime"]
    assert it["TrainingTimeInSeconds"] >= 1 and it["BillableTimeInSeconds"] >= 1


def test_log_lines(jobs, name):
    lines = jobs.lines(name)
    for line in ["epoch 1 loss: 0.5", "epoch 2 loss: 0.25", "to stderr", "a#011b"]:
        assert line in lines


def test_the_last_value_of_a_metric(jobs, name):
    metrics = jobs.describe(name)["FinalMetricDataList"]
    assert [(metric["MetricName"], metric["Value"]) for metric in metrics] == [("loss", 0.25)]


def test_artifacts(jobs, name):
    assert jobs.describe(name)["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://tests/out/{name}/output/model.tar.gz"
    assert jobs.artifact(name) == {"weights.txt": b"weights\n"}
    assert jobs.artifact(name, "output") == {"report.txt": b"more\n"}


def test_the_waiter_ends(jobs, name):
    waiter = jobs.sagemaker.get_waiter("training_job_completed_or_stopped")
    waiter.wait(TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 3})
