"""The AWS CLI, version 1, unmodified, under `shoal exec`."""

import json
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from house import BUCKET, eventually
from jobs import GROUP
from tuning_jobs import Tuning

PROGRAM = pathlib.Path(__file__).with_name("aws_cli.py")


@pytest.fixture(scope="module")
def aws(house, tmp_path_factory):
    home = tmp_path_factory.mktemp("aws")
    command = house.command("exec", "--", sys.executable, str(PROGRAM))
    with subprocess.Popen(
        command, env=house.environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:

        def run(*arguments, status=0, directory=home):
            """What a command prints: a value where it is JSON."""
            process.stdin.write(json.dumps([str(directory), ["--output", "json", *arguments]]) + "\n")
            process.stdin.flush()
            ended, out, err = json.loads(process.stdout.readline())
            assert ended == status, (arguments, out, err)
            said = err if status else out
            return json.loads(said) if said.startswith(("{", "[", '"')) else said

        yield run
        process.stdin.close()


def test_s3(aws, tmp_path):
    (tmp_path / "tree/deep").mkdir(parents=True)
    for name, text in (("tree/a.txt", "a"), ("tree/deep/b c+d.txt", "b")):
        (tmp_path / name).write_text(text)
    aws("s3", "mb", "s3://cli")
    assert "upload: tree/a.txt" in aws("s3", "sync", "tree", "s3://cli/tree", directory=tmp_path)
    listing = aws("s3", "ls", "--recursive", "s3://cli/")
    assert [line.split(maxsplit=3)[2:] for line in listing.splitlines()] == [
        ["1", "tree/a.txt"],
        ["1", "tree/deep/b c+d.txt"],
    ]
    assert "PRE tree/" in aws("s3", "ls", "s3://cli/")
    put = aws("s3api", "put-object", "--bucket", "cli", "--key", "put", "--body", str(tmp_path / "tree/a.txt"))
    assert put["ETag"] == '"0cc175b9c0f1b6a831c399e269772661"' and put["ChecksumCRC32"] == "6Le+Qw=="
    aws("s3", "cp", "s3://cli/put", "s3://cli/copy")
    assert aws("s3", "cp", "s3://cli/copy", "-") == "a"
    aws("s3", "sync", "s3://cli/tree", "back", directory=tmp_path)
    assert (tmp_path / "back/deep/b c+d.txt").read_text() == "b"
    # Nothing has changed, so nothing goes.
    assert aws("s3", "sync", "tree", "s3://cli/tree", directory=tmp_path) == ""
    assert "NoSuchKey" not in aws("s3", "rm", "s3://cli/tree/a.txt")
    assert "BucketNotEmpty" in aws("s3", "rb", "s3://cli", status=1)
    assert "remove_bucket: cli" in aws("s3", "rb", "--force", "s3://cli")
    assert "NoSuchBucket" in aws("s3", "ls", "s3://cli", status=255)


def test_a_presigned_link_opens_without_keys(aws, jobs):
    """The CLI signs links in the old way, version 2."""
    jobs.put("links/secret", "for who has the link")
    link = aws("s3", "presign", f"s3://{BUCKET}/links/secret").strip()
    assert "AWSAccessKeyId=" in link
    with urllib.request.urlopen(link) as answer:
        assert answer.read() == b"for who has the link"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(link.replace("secret", "other"))
    assert refused.value.code == 403 and b"SignatureDoesNotMatch" in refused.value.read()


def test_a_training_job(aws, jobs, tmp_path):
    name = jobs.request("cli")["TrainingJobName"]
    request = {
        **jobs.request("cli"),
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": "shoal/host",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["sh", "-c", "echo 'loss: 0.25'; echo weights > /opt/ml/model/w; sleep 0.3"],
            "MetricDefinitions": [{"Name": "loss", "Regex": r"loss: (\S+)"}],
        },
        "Tags": [{"Key": "team", "Value": "tests"}],
    }
    (tmp_path / "job.json").write_text(json.dumps(request))
    arn = aws("sagemaker", "create-training-job", "--cli-input-json", f"file://{tmp_path}/job.json")["TrainingJobArn"]
    assert arn == f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{name}"
    aws("sagemaker", "wait", "training-job-completed-or-stopped", "--training-job-name", name)
    described = aws("sagemaker", "describe-training-job", "--training-job-name", name)
    assert described["TrainingJobStatus"] == "Completed" and described["FinalMetricDataList"][0]["Value"] == 0.25
    listed = aws("sagemaker", "list-training-jobs", "--name-contains", name, "--status-equals", "Completed")
    assert [summary["TrainingJobArn"] for summary in listed["TrainingJobSummaries"]] == [arn]

    streams = aws("logs", "describe-log-streams", "--log-group-name", GROUP, "--log-stream-name-prefix", f"{name}/")[
        "logStreams"
    ]
    stream = streams[0]["logStreamName"]
    events = aws("logs", "get-log-events", "--log-group-name", GROUP, "--log-stream-name", stream)["events"]
    assert "loss: 0.25" in [event["message"] for event in events]

    found = aws(
        "logs",
        "filter-log-events",
        "--log-group-name",
        GROUP,
        "--log-stream-name-prefix",
        f"{name}/",
        "--filter-pattern",
        "loss",
    )
    assert [event["message"] for event in found["events"]] == ["loss: 0.25"]
    window = ["--start-time", described["TrainingStartTime"], "--end-time", str(time.time() + 60)]
    points = aws(
        *(
            "cloudwatch",
            "get-metric-statistics",
            "--namespace",
            GROUP,
            "--metric-name",
            "loss",
            "--statistics",
            "Average",
            "--period",
            "60",
        ),
        *("--dimensions", f"Name=TrainingJobName,Value={name}", *map(str, window)),
    )["Datapoints"]
    assert [point["Average"] for point in points] == [0.25]

    aws("sagemaker", "add-tags", "--resource-arn", arn, "--tags", "Key=stage,Value=test")
    tags = aws("sagemaker", "list-tags", "--resource-arn", arn)["Tags"]
    assert sorted((tag["Key"], tag["Value"]) for tag in tags) == [("stage", "test"), ("team", "tests")]
    aws("sagemaker", "delete-tags", "--resource-arn", arn, "--tag-keys", "team")
    assert [tag["Key"] for tag in aws("sagemaker", "list-tags", "--resource-arn", arn)["Tags"]] == ["stage"]
    expression = {"Filters": [{"Name": "TrainingJobName", "Operator": "Equals", "Value": name}]}
    results = aws("sagemaker", "search", "--resource", "TrainingJob", "--search-expression", json.dumps(expression))[
        "Results"
    ]
    assert [result["TrainingJob"]["TrainingJobArn"] for result in results] == [arn]

    aws("s3", "cp", described["ModelArtifacts"]["S3ModelArtifacts"], str(tmp_path / "model.tar.gz"))
    assert (tmp_path / "model.tar.gz").stat().st_size > 0


def test_stopping_and_mistakes(aws, jobs):
    name = jobs.command("echo up; exec sleep 60")
    jobs.saying(name, "up")
    assert aws("sagemaker", "stop-training-job", "--training-job-name", name) == ""
    aws("sagemaker", "wait", "training-job-completed-or-stopped", "--training-job-name", name)
    assert aws("sagemaker", "describe-training-job", "--training-job-name", name)["TrainingJobStatus"] == "Stopped"
    assert "ValidationException" in aws(
        "sagemaker", "describe-training-job", "--training-job-name", "nobody", status=255
    )
    failing = jobs.command("echo 'out of luck' > /opt/ml/output/failure; exit 3")
    said = aws("sagemaker", "wait", "training-job-completed-or-stopped", "--training-job-name", failing, status=255)
    assert "Waiter TrainingJobCompletedOrStopped failed" in said and "terminal failure state" in said


def test_a_tuning_job(aws, jobs, tmp_path):
    tuning = Tuning(jobs)
    request = tuning.request(tuning.definition(epochs=1), jobs=3)
    name = request["HyperParameterTuningJobName"] = "cli-tuning"
    (tmp_path / "tuning.json").write_text(json.dumps(request))
    made = aws("sagemaker", "create-hyper-parameter-tuning-job", "--cli-input-json", f"file://{tmp_path}/tuning.json")
    assert made["HyperParameterTuningJobArn"].endswith(f":hyper-parameter-tuning-job/{name}")
    named = ("--hyper-parameter-tuning-job-name", name)
    over = lambda: aws("sagemaker", "describe-hyper-parameter-tuning-job", *named)  # noqa: E731
    told = eventually(lambda: (it := over())["HyperParameterTuningJobStatus"] != "InProgress" and it)
    assert told["HyperParameterTuningJobStatus"] == "Completed", told.get("FailureReason")
    listed = aws("sagemaker", "list-hyper-parameter-tuning-jobs", "--name-contains", name, "--sort-by", "CreationTime")
    assert [it["HyperParameterTuningJobName"] for it in listed["HyperParameterTuningJobSummaries"]] == [name]
    of = (
        "sagemaker",
        "list-training-jobs-for-hyper-parameter-tuning-job",
        *named,
        "--sort-by",
        "FinalObjectiveMetricValue",
    )
    first = aws(*of, "--max-items", "1", "--page-size", "1")["TrainingJobSummaries"][0]
    assert (
        first["TrainingJobName"] == told["BestTrainingJob"]["TrainingJobName"]
        and len(aws(*of)["TrainingJobSummaries"]) == 3
    )
    assert "Completed" in aws("sagemaker", "stop-hyper-parameter-tuning-job", *named, status=255)
    aws("sagemaker", "delete-hyper-parameter-tuning-job", *named)
    assert "ResourceNotFound" in aws("sagemaker", "describe-hyper-parameter-tuning-job", *named, status=255)
