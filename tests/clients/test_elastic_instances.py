"""A job that declares how few instances it can live with gives some to other jobs and gets them
back, while its ranks train on in place.
"""

import itertools
import json
import os
import pathlib
import signal

import pytest
import traces
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


def in_order(sizes, seen):
    """Whether these sizes of the world came in this order. Instances that leave together may be
    noticed separately: there may be others in between.
    """
    rest = iter(seen)
    return all(size in rest for size in sizes)


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


def torchrun(jobs, sizes):
    """A torchrun script that is to run on these numbers of instances one after the other."""
    files = {
        "train.py": (HERE / "elastic_instances.py").read_text(),
        "elastic_ranks.py": (TESTS / "elastic_ranks.py").read_text(),
    }
    given = {"sagemaker_torch_distributed_enabled": "true", "sizes": json.dumps(",".join(map(str, sizes)))}
    name = create(jobs, files, image=PYTORCH, instances=sizes[0], instance_type=TYPE, hyperparameters=given, Tags=TAGS)
    jobs.saying(name, f"of {sizes[0]} at step 0", f"algo-{sizes[0]}")
    return name


def check_torchrun(jobs, name, sizes, figures):
    """Each sample was read once, the weights are those of one process, and all changes were in
    place.
    """
    lines = jobs.logs(name)["algo-1"]
    result = json.loads(next(line for line in lines if line.startswith('{"seen"')))
    seen = result["seen"]
    assert in_order(sizes, seen) and result["once"] and result["sizes"] == sorted(set(seen)), result
    assert result["most"] < 1e-5, result
    changes = [match.groups() for match in map(LINE.search, lines) if match]
    assert [(int(before), int(after)) for before, after, _ in changes] == list(itertools.pairwise(seen)), changes
    figures("elastic instances: " + ", ".join(f"{before} -> {after} ranks in {ms} ms" for before, after, ms in changes))


def test_a_torchrun_script(jobs, package, figures):
    name = torchrun(jobs, [4, 2, 3])
    from_four_to_two_to_three(jobs, name)
    check_torchrun(jobs, name, [4, 2, 3], figures)


def test_lost_and_interrupted_instances_are_replaced(jobs, package, figures):
    name = torchrun(jobs, [3, 2, 3, 2, 3])
    os.kill(traces.agents(jobs.house)[3], signal.SIGKILL)
    jobs.saying(name, "rank 2 of 3 at step 8", "algo-3")
    assert "is interrupted" in jobs.house.shoal("chaos", "interrupt", name, "--instances", "1").stdout
    jobs.completed(name)
    check_torchrun(jobs, name, [3, 2, 3, 2, 3], figures)
    refused = jobs.house.shoal("chaos", "interrupt", name, check=False)
    assert refused.returncode != 0 and "Completed" in refused.stderr, refused


def test_an_elastic_horovod_script(jobs, package):
    files = {"train.py": (HERE / "elastic_horovod_instances.py").read_text()}
    given = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "1"}
    name = create(jobs, files, image=PYTORCH, instances=4, instance_type=TYPE, hyperparameters=given, Tags=TAGS)
    jobs.saying(name, "of 4 with 0 read", "algo-4")
    from_four_to_two_to_three(jobs, name)
    epochs = [json.loads(line[line.index("{") :]) for line in jobs.logs(name)["algo-1"] if '"epoch"' in line]
    assert len(epochs) == 2 and all(in_order([4, 2, 3], it["seen"]) and it["once"] for it in epochs), epochs
    assert epochs[0]["pid"] == epochs[1]["pid"], "the first worker has kept its process"
