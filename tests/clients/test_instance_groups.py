"""Heterogeneous clusters: groups of instances of several types in one training job."""

import json
import re

import pytest
from test_script_mode import HOST, sourcedir

LOOK = """
import json, os, pathlib, socket
data = pathlib.Path("/opt/ml/input/data")
seen = {name: os.environ[name] for name in os.environ if name.startswith("SM_")}
seen["channels"] = {channel.name: sorted(path.name for path in channel.iterdir()) for channel in data.iterdir()}
seen["config"] = json.loads(pathlib.Path("/opt/ml/input/config/resourceconfig.json").read_text())
seen["reached"] = [socket.gethostbyname(host) for host in json.loads(os.environ["SM_HOSTS"])]
pathlib.Path(os.environ["SM_MODEL_DIR"], seen["SM_CURRENT_HOST"]).write_text(json.dumps(seen))
"""
GROUPS = [
    {"InstanceGroupName": "small", "InstanceType": "ml.m4.xlarge", "InstanceCount": 1},
    {"InstanceGroupName": "large", "InstanceType": "ml.m5.large", "InstanceCount": 2},
]


def channel(jobs, name, groups, **more):
    for at in range(3):
        jobs.put(f"groups/{name}/{at}.csv", "1\n")
    it = jobs.channel(name, f"groups/{name}", **more)
    it["DataSource"]["S3DataSource"]["InstanceGroupNames"] = groups
    return it


def test_each_group_has_its_type_its_channels_and_its_name(jobs):
    channels = [
        channel(jobs, "both", ["small", "large"]),
        channel(jobs, "parts", ["large"], distribution="ShardedByS3Key"),
    ]
    uri = sourcedir(jobs, {"look.py": LOOK})
    request = jobs.request(
        "groups",
        AlgorithmSpecification={"TrainingImage": HOST, "TrainingInputMode": "File"},
        HyperParameters={"sagemaker_program": "look.py", "sagemaker_submit_directory": uri},
        ResourceConfig={"InstanceGroups": GROUPS, "VolumeSizeInGB": 1},
        InputDataConfig=channels,
    )
    jobs.sagemaker.create_training_job(**request)
    name = request["TrainingJobName"]
    jobs.completed(name)
    assert jobs.describe(name)["ResourceConfig"] == request["ResourceConfig"]
    assert jobs.describe(name)["InputDataConfig"][1]["DataSource"]["S3DataSource"]["InstanceGroupNames"] == ["large"]
    seen = {host: json.loads(text) for host, text in jobs.artifact(name).items()}
    assert list(sorted(seen)) == ["algo-1", "algo-2", "algo-3"]
    every = ["0.csv", "1.csv", "2.csv"]
    # The tests' ml.m4.xlarge has one core.
    for host, group, kind, cpus, inputs in [
        ("algo-1", "small", "ml.m4.xlarge", 1, {"both": every}),
        ("algo-2", "large", "ml.m5.large", 2, {"both": every, "parts": ["0.csv", "2.csv"]}),
        ("algo-3", "large", "ml.m5.large", 2, {"both": every, "parts": ["1.csv"]}),
    ]:
        it = seen[host]
        assert (it["SM_CURRENT_INSTANCE_GROUP"], it["SM_CURRENT_INSTANCE_TYPE"]) == (group, kind)
        # Its share of the machine's cores, which other jobs have, too.
        assert 1 <= int(it["SM_NUM_CPUS"]) <= cpus
        assert (it["SM_IS_HETERO"], json.loads(it["SM_INSTANCE_GROUPS"])) == ("true", ["small", "large"])
        assert (it["channels"], json.loads(it["SM_CHANNELS"])) == (inputs, sorted(inputs))
        assert it["config"]["current_group_name"] == group
        assert [entry["hosts"] for entry in it["config"]["instance_groups"]] == [["algo-1"], ["algo-2", "algo-3"]]
        assert len(set(it["reached"])) == 3


def test_a_group_has_the_memory_of_its_type(jobs):
    """Of the small one, which is the second: its program is killed, and the reason names its
    limit.
    """
    text = "import os; os.environ['SM_CURRENT_INSTANCE_GROUP'] == 'small' and bytearray(1 << 30)"
    uri = sourcedir(jobs, {"eat.py": text})
    request = jobs.request(
        "groups",
        AlgorithmSpecification={"TrainingImage": HOST, "TrainingInputMode": "File"},
        HyperParameters={"sagemaker_program": "eat.py", "sagemaker_submit_directory": uri},
        ResourceConfig={"InstanceGroups": GROUPS[::-1], "VolumeSizeInGB": 1},
    )
    jobs.sagemaker.create_training_job(**request)
    reason = jobs.failed(request["TrainingJobName"])
    assert re.search(r"algo-3 ran out of memory \(limit 0\.[01] GiB\)", reason), reason


def test_a_channel_for_a_group_that_is_not_there_is_refused(jobs):
    request = jobs.request(
        "groups",
        AlgorithmSpecification={"TrainingImage": HOST, "TrainingInputMode": "File", "ContainerEntrypoint": ["true"]},
        ResourceConfig={"InstanceGroups": GROUPS, "VolumeSizeInGB": 1},
        InputDataConfig=[channel(jobs, "both", ["medium"])],
    )
    with pytest.raises(jobs.sagemaker.exceptions.ClientError, match="has no group 'medium'"):
        jobs.sagemaker.create_training_job(**request)
