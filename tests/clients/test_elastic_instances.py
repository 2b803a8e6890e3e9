"""A job that declares how few instances it can live with gives some to other jobs and gets them back, while its ranks train on in place."""

import json
import pathlib

import pytest
from jobs import Jobs
from test_distributions import PYTORCH
from test_elastic_job import LINE
from test_script_mode import create

HERE = pathlib.Path(__file__).parent
TESTS = HERE.parents[1] / "py/tests"
# Runs until it is stopped.
WAITS = "echo ready; trap 'exit 0' TERM; while true; do sleep 0.1; done"
# 4 GiB.
TYPE = "ml.t3.medium"
TAGS = [{"Key": "shoal:min-instances", "Value": "2"}]


@pytest.fixture
def jobs(new_house):
    """A machine with room for four instances."""
    house = new_house("--memory", "16GiB", "--packing", "promise")
    if not house.has_environment("pytorch"):
        pytest.skip("needs the PyTorch environment: shoal env-cache prepare pytorch")
    return Jobs(house)


def message(jobs, name):
    return jobs.describe(name)["SecondaryStatusTransitions"][-1]["StatusMessage"]


def from_four_to_two_to_three(jobs, name):
    """Other jobs need two instances of this one, and then one of them is free again."""
    first = jobs.script(WAITS, instances=2, instance_type=TYPE)
    jobs.saying(first, "ready", "algo-2")
    assert "Training on 2 of 4 instances: algo-3, algo-4" in message(jobs, name)
    second = jobs.script(WAITS, instance_type=TYPE)
    jobs.until(second, "Pending")
    jobs.sagemaker.stop_training_job(TrainingJobName=first)
    jobs.saying(second, "ready")
    ended = jobs.completed(name)
    statuses = [it["Status"] for it in ended["SecondaryStatusTransitions"]]
    assert statuses == ["Starting", "Downloading", "Training", "Uploading", "Completed"], statuses
    jobs.sagemaker.stop_training_job(TrainingJobName=second)
    jobs.wait(second)


def test_a_torchrun_script(jobs, package, figures):
    files = {"train.py": (HERE / "elastic_instances.py").read_text(), "elastic_ranks.py": (TESTS / "elastic_ranks.py").read_text()}
    given = {"sagemaker_torch_distributed_enabled": "true"}
    name = create(jobs, files, image=PYTORCH, instances=4, instance_type=TYPE, hyperparameters=given, Tags=TAGS)
    jobs.saying(name, "of 4 at step 0", "algo-4")
    from_four_to_two_to_three(jobs, name)
    logs = jobs.logs(name)
    result = json.loads(next(line for line in logs["algo-1"] if line.startswith('{"seen"')))
    assert (result["seen"], result["sizes"], result["once"]) == ([4, 2, 3], [2, 3, 4], True), result
    assert result["most"] < 1e-5, result
    changes = [match.groups() for match in map(LINE.search, logs["algo-1"]) if match]
    assert [(before, after) for before, after, _ in changes] == [("4", "2"), ("2", "3")], changes
    figures("elastic instances: " + ", ".join(f"{before} -> {after} ranks in {ms} ms" for before, after, ms in changes))


def test_an_elastic_horovod_script(jobs, package):
    files = {"train.py": (HERE / "elastic_horovod_instances.py").read_text()}
    given = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "1"}
    name = create(jobs, files, image=PYTORCH, instances=4, instance_type=TYPE, hyperparameters=given, Tags=TAGS)
    jobs.saying(name, "of 4 with 0 read", "algo-4")
    from_four_to_two_to_three(jobs, name)
    epochs = [json.loads(line[line.index("{") :]) for line in jobs.logs(name)["algo-1"] if '"epoch"' in line]
    assert [(it["seen"], it["once"]) for it in epochs] == [([4, 2, 3], True)] * 2, epochs
    assert epochs[0]["pid"] == epochs[1]["pid"], "the first worker has kept its process"
