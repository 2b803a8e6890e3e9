"""Inputs and outputs that a request may ask for, and those that are refused at creation with a
reason.
"""

import json
import threading

import pytest
from jobs import Jobs


def channel(uri, kind="S3Prefix", **changes):
    source = {"S3DataType": kind, "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    return [{"ChannelName": "train", "DataSource": {"S3DataSource": source}, **changes}]


def create(jobs, inputs, line="cd /opt/ml/input/data/train && find . -type f | sort", **changes):
    return jobs.command(line, InputDataConfig=inputs, **changes)


def test_one_object(jobs):
    jobs.put("inputs/one/file.txt", "1")
    jobs.put("inputs/one/file.txt.other", "2")
    name = create(jobs, channel("s3://tests/inputs/one/file.txt"))
    jobs.completed(name)
    assert "./file.txt" in jobs.lines(name)


def test_a_manifest(jobs):
    for key in ("a/1", "a/2", "b/3"):
        jobs.put(f"inputs/listed/{key}", key)
    jobs.put("inputs/manifest.json", json.dumps([{"prefix": "s3://tests/inputs/listed/"}, "a/1", "b/3"]))
    name = create(jobs, channel("s3://tests/inputs/manifest.json", "ManifestFile"))
    jobs.completed(name)
    assert jobs.lines(name) == ["./a/1", "./b/3"]


@pytest.mark.parametrize(
    "inputs, named",
    [
        (lambda: channel("s3://tests/inputs/conflict/"), "`a` and `a/b`"),
        (lambda: channel("s3://tests/inputs/nothing.json", "ManifestFile"), "inputs/nothing.json"),
        (lambda: channel("s3://tests/inputs/bad.json", "ManifestFile"), "inputs/bad.json"),
        (lambda: channel("s3://tests/inputs/conflict/", "AugmentedManifestFile"), "S3DataType"),
        (lambda: channel("http://tests/inputs/"), "s3Uri"),
        (lambda: channel("s3://tests/inputs/one/") * 2, "train"),
        (lambda: channel("s3://tests/inputs/one/", ChannelName="../up"), "hannelName"),
        (lambda: channel("s3://tests/inputs/one/", ChannelName=".."), "hannelName"),
    ],
)
def test_refused(jobs, inputs, named):
    jobs.put("inputs/conflict/a", "file")
    jobs.put("inputs/conflict/a/b", "and directory")
    jobs.put("inputs/one/file.txt", "1")
    jobs.put("inputs/bad.json", "{")
    with pytest.raises(jobs.sagemaker.exceptions.ClientError) as error:
        create(jobs, inputs())
    answer = error.value.response["Error"]
    assert answer["Code"] == "ValidationException" and named.lower() in answer["Message"].lower(), answer


def test_keys_cannot_leave_their_channel(jobs):
    """Legal names of objects, but no file of a channel may lie outside it."""
    jobs.put("inputs/dots/ok.txt", "1")
    jobs.s3.put_object(Bucket="tests", Key="inputs/dots/../../../../evil", Body=b"x")
    try:
        name = create(jobs, channel("s3://tests/inputs/dots/"))
    except jobs.sagemaker.exceptions.ClientError as error:
        assert error.response["Error"]["Code"] == "ValidationException"
    else:
        assert "evil" not in " ".join(jobs.lines(name))


def test_a_model_without_compression(jobs):
    output = {"S3OutputPath": "s3://tests/out", "CompressionType": "NONE"}
    name = jobs.command(
        "mkdir /opt/ml/model/sub; echo a > /opt/ml/model/a; echo b > /opt/ml/model/sub/b", OutputDataConfig=output
    )
    it = jobs.completed(name)
    assert it["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://tests/out/{name}/output/model/"
    listed = jobs.s3.list_objects_v2(Bucket="tests", Prefix=f"out/{name}/output/model/")["Contents"]
    assert [entry["Key"].rsplit("model/", 1)[1] for entry in listed] == ["a", "sub/b"]
    assert jobs.s3.get_object(Bucket="tests", Key=f"out/{name}/output/model/sub/b")["Body"].read() == b"b\n"


def test_what_is_deleted_under_a_job_that_waits_is_told(new_house):
    jobs = Jobs(new_house("--instances", "1"))
    jobs.put("inputs/gone/a", "1")
    first = jobs.command("trap 'exit 0' TERM; echo ready; while true; do sleep 0.1; done")
    jobs.saying(first, "ready")
    second = create(jobs, channel("s3://tests/inputs/gone/"))
    jobs.until(second, "Pending")
    jobs.s3.delete_object(Bucket="tests", Key="inputs/gone/a")
    jobs.sagemaker.stop_training_job(TrainingJobName=first)
    reason = jobs.failed(second)
    assert "inputs/gone" in reason and reason.startswith("ClientError"), reason


def test_what_is_overwritten_under_a_job_that_runs_stays_for_it(jobs):
    jobs.put("inputs/steady/a", "before")
    name = create(
        jobs, channel("s3://tests/inputs/steady/"), "echo ready; sleep 0.7; cat /opt/ml/input/data/train/a; echo"
    )
    jobs.saying(name, "ready")
    jobs.put("inputs/steady/a", "after")
    jobs.s3.delete_object(Bucket="tests", Key="inputs/steady/a")
    jobs.completed(name)
    assert jobs.lines(name) == ["ready", "before"]


def test_of_many_at_once_with_one_name_one_is_made(jobs):
    request = jobs.request("race")
    algorithm = {"TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["true"]}
    outcomes = []

    def attempt():
        try:
            jobs.sagemaker.create_training_job(**request, AlgorithmSpecification=algorithm)
            outcomes.append("made")
        except jobs.sagemaker.exceptions.ResourceInUse:
            outcomes.append("taken")

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["made"] + ["taken"] * 7
    jobs.completed(request["TrainingJobName"])


def test_many_jobs_at_once(jobs):
    names = [jobs.command(f"echo {i} > /opt/ml/model/n") for i in range(25)]
    for i, name in enumerate(names):
        jobs.completed(name)
        assert jobs.artifact(name) == {"n": f"{i}\n".encode()}
