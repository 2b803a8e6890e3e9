"""Shoal's own parameter server in jobs: what scripts without TensorFlow have of
`distribution={"parameter_server": {"enabled": True}}`.
"""

import json
import pathlib
import re

import data
import pytest
from house import BUCKET
from jobs import Jobs
from test_distributions import by_sdk_v2
from test_script_mode import create

SCRIPT = pathlib.Path(__file__).with_name("mnist_parameter_server.py").read_text()
IMAGE = "sagemaker-scikit-learn:1.2-1-cpu-py3"
ON = {"sagemaker_parameter_server_enabled": "true"}


@pytest.fixture(scope="module")
def digits(jobs):
    for name, content in data.mnist().items():
        jobs.put(f"mnist-served/{name}", content)
    return jobs.channel("train", "mnist-served")


def accuracy(lines):
    return float(re.search("accuracy=([0-9.]+);", lines[-1])[1])


@pytest.mark.parametrize("instances", [2, 4])
def test_digits_are_learned_in_step_as_by_one_process(house, jobs, digits, package, tmp_path, instances):
    # SDK v2's estimator for scikit-learn refuses several instances, and its general one does not.
    given = {
        "image_uri": f"683313688378.dkr.ecr.us-east-1.amazonaws.com/{IMAGE}",
        "instance_count": instances,
        "instance_type": "ml.m5.large",
    }
    hyperparameters = {"sagemaker_parameter_server_enabled": True, "steps": 100}
    each = [{**given, "hyperparameters": hyperparameters}]
    [name] = by_sdk_v2(house, tmp_path, "Estimator", each, SCRIPT, f"s3://{BUCKET}/mnist-served")
    jobs.completed(name)
    said = [jobs.lines(name, f"algo-{number + 1}") for number in range(instances)]
    for rank, lines in enumerate(said):
        assert f"rank {rank} of {instances} on algo-{rank + 1}" in lines, lines
    # In step, all end with the same bits.
    assert len({lines[-1] for lines in said}) == 1 and accuracy(said[0]) > 0.8, said
    losses = json.loads(jobs.artifact(name)["losses.json"])
    assert losses["of_all"] == pytest.approx(losses["alone"], rel=1e-3)
    assert losses["of_all"][-1] < 0.6 < losses["of_all"][0]


def test_workers_that_run_ahead_learn_as_well(jobs, digits, package):
    name = create(
        jobs, {"train.py": SCRIPT}, image=IMAGE, instances=2, channels=[digits], hyperparameters={**ON, "ahead": "3"}
    )
    jobs.completed(name)
    for number in (1, 2):
        assert accuracy(jobs.lines(name, f"algo-{number}")) > 0.8


TENSORS = """
import torch
from shoal.parameter_server import ParameterServer
torch.manual_seed(0)
line = torch.nn.Linear(3, 1)
aim = torch.tensor([[1.0], [-2.0], [0.5]])
shapes = {name: parameter.shape for name, parameter in line.named_parameters()}
with ParameterServer(shapes) as server:
    if server.rank == 0:
        for name, parameter in line.named_parameters():
            server.push(name, parameter, how="assign")
    server.advance()
    torch.manual_seed(1 + server.rank)
    for step in range(100):
        for name, parameter in line.named_parameters():
            server.pull(name, into=parameter)
        x = torch.randn(32, 3)
        loss = ((line(x) - x @ aim - 4) ** 2).mean()
        line.zero_grad()
        loss.backward()
        for name, parameter in line.named_parameters():
            server.push(name, -0.1 / server.size * parameter.grad)
        server.advance()
print("learned", [round(value, 3) for value in line.weight[0].tolist()], round(line.bias.item(), 3))
"""


def test_sdk_v2_starts_it_and_tensors_of_pytorch_are_taken(house, jobs, package, tmp_path):
    if not house.has_environment("pytorch"):
        pytest.skip("needs the PyTorch environment: shoal env-cache prepare pytorch")
    given = {
        "framework_version": "2.0.1",
        "py_version": "py310",
        "instance_count": 2,
        "instance_type": "ml.m5.large",
        "distribution": {"parameter_server": {"enabled": True}},
    }
    [name] = by_sdk_v2(house, tmp_path, "PyTorch", [given], TENSORS)
    jobs.completed(name)
    for number in (1, 2):
        assert "learned [1.0, -2.0, 0.5] 4.0" in jobs.lines(name, f"algo-{number}")


def test_the_reason_is_that_of_the_worker_that_failed(jobs, package):
    # The other goes on by itself until it is ended.
    script = """
from shoal.parameter_server import ParameterServer
with ParameterServer({"sum": 1000}, servers=[0], tolerates_loss=True) as server:
    while True:
        if server.advance().clock == 3 and server.rank == 1:
            raise ValueError("a mistake in step 3")
"""
    name = create(jobs, {"train.py": script}, image=IMAGE, instances=2, hyperparameters=ON)
    assert "ValueError: a mistake in step 3" in jobs.failed(name)


def test_only_instances_of_the_distributions_groups_are_ranks(jobs, package):
    script = """
import os
if os.environ["SM_CURRENT_INSTANCE_GROUP"] == "servers":
    import numpy
    from shoal.parameter_server import ParameterServer
    with ParameterServer({"sum": 1}) as server:
        # What NumPy makes float32 of.
        for values in ([2], numpy.full(1, 0.5), numpy.ones((1, 1))[:, 0]):
            server.push("sum", values)
        server.advance()
        print("rank", server.rank, "of", server.size, "sum", server.pull("sum")[0])
"""
    groups = [("others", 1), ("servers", 2)]
    resources = {
        "VolumeSizeInGB": 1,
        "InstanceGroups": [
            {"InstanceGroupName": name, "InstanceType": "ml.m5.large", "InstanceCount": count} for name, count in groups
        ],
    }
    on = {**ON, "sagemaker_distribution_instance_groups": json.dumps(["servers"])}
    name = create(jobs, {"train.py": script}, image=IMAGE, hyperparameters=on, ResourceConfig=resources)
    jobs.completed(name)
    assert [jobs.lines(name, f"algo-{number}") for number in (1, 2, 3)] == [
        [],
        ["rank 0 of 2 sum 7.0"],
        ["rank 1 of 2 sum 7.0"],
    ]


def test_a_server_without_the_package_says_so_and_runs_the_script(new_house):
    jobs = Jobs(new_house("--python-package", "none"))
    name = create(jobs, {"train.py": "print('does without')"}, image=IMAGE, instances=2, hyperparameters=ON)
    jobs.completed(name)
    lines = jobs.logs(name)["algo-1"]
    assert any("python_package in shoal.toml" in line for line in lines) and "does without" in lines[-1], lines
