"""What a training program is told: variables, config files, its command line."""

import json

import pytest

DUMP = """
import json, os
config = {}
for name in os.listdir("/opt/ml/input/config"):
    with open(f"/opt/ml/input/config/{name}") as file:
        config[name] = json.load(file)
print(json.dumps({"variables": dict(os.environ), "config": config}))
"""


@pytest.fixture(scope="module")
def found(jobs):
    """What a program on algo-2 of two sees."""
    jobs.put("inside/train/a.csv", "1,2\n")
    name = jobs.python(
        DUMP,
        instances=2,
        name="inside",
        channels=[jobs.channel("train", "inside/train/", content_type="text/csv")],
        HyperParameters={"batch-size": "32", "b": "true", "text": '"quoted"', "sagemaker_program": '"train.py"'},
        Environment={"COLOUR": "red", "AWS_REGION": "eu-central-1"},
    )
    jobs.completed(name)
    (line,) = jobs.lines(name, "algo-2")
    return {"name": name, **json.loads(line)}


def test_variables_of_the_platform(found):
    variables = found["variables"]
    assert variables["TRAINING_JOB_NAME"] == found["name"]
    assert variables["TRAINING_JOB_ARN"] == f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{found['name']}"
    assert variables["COLOUR"] == "red"
    assert variables["AWS_REGION"] == "eu-central-1", "the request's own variables win"
    assert variables["AWS_ACCESS_KEY_ID"].startswith("ASIA") and variables["AWS_SESSION_TOKEN"]
    assert not [name for name in variables if name.startswith("SHOAL")]


def test_variables_of_the_toolkit(found):
    variables = found["variables"]
    assert json.loads(variables["SM_HPS"]) == {"batch-size": 32, "b": True, "text": "quoted"}
    assert (variables["SM_HP_BATCH-SIZE"], variables["SM_HP_B"], variables["SM_HP_TEXT"]) == ("32", "true", "quoted")
    assert json.loads(variables["SM_USER_ARGS"]) == ["-b", "True", "--batch-size", "32", "--text", "quoted"]
    assert variables["SM_USER_ENTRY_POINT"] == "train.py"
    assert variables["SM_CURRENT_HOST"] == "algo-2" and json.loads(variables["SM_HOSTS"]) == ["algo-1", "algo-2"]
    assert variables["SM_CHANNEL_TRAIN"] == "/opt/ml/input/data/train" and json.loads(variables["SM_CHANNELS"]) == [
        "code",
        "train",
    ]
    assert variables["SM_MODEL_DIR"] == "/opt/ml/model" and variables["SM_OUTPUT_DATA_DIR"] == "/opt/ml/output/data"
    assert variables["SM_NUM_GPUS"] == "0" and int(variables["SM_NUM_CPUS"]) >= 1
    assert json.loads(variables["SM_TRAINING_ENV"])["job_name"] == found["name"]


def test_config_files(found):
    config = found["config"]
    assert config["hyperparameters.json"] == {
        "batch-size": "32",
        "b": "true",
        "text": '"quoted"',
        "sagemaker_program": '"train.py"',
    }
    assert config["resourceconfig.json"]["current_host"] == "algo-2"
    assert config["resourceconfig.json"]["hosts"] == ["algo-1", "algo-2"]
    assert config["resourceconfig.json"]["current_instance_type"] == "ml.m5.large"
    assert config["resourceconfig.json"]["current_group_name"] == "homogeneousCluster"
    train = config["inputdataconfig.json"]["train"]
    assert (train["ContentType"], train["TrainingInputMode"], train["S3DistributionType"]) == (
        "text/csv",
        "File",
        "FullyReplicated",
    )


def test_entrypoint_and_arguments_are_words_and_not_a_shell_line(jobs):
    algorithm = {
        "TrainingImage": "shoal/host",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["/bin/sh", "-c", 'for word; do echo "<$word>"; done'],
        "ContainerArguments": ["sh", "two words", "$HOME", "*", "'quoted'"],
    }
    request = jobs.request("words")
    jobs.sagemaker.create_training_job(**request, AlgorithmSpecification=algorithm)
    jobs.completed(request["TrainingJobName"])
    assert jobs.lines(request["TrainingJobName"]) == ["<two words>", "<$HOME>", "<*>", "<'quoted'>"]
