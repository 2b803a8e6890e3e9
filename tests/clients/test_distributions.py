"""What `distribution` starts: real torchrun of the PyTorch environment, and real training by
DistributedDataParallel.
"""

import json
import os
import pathlib
import re
import sys

import data
import pytest
from house import BUCKET
from jobs import Jobs
from test_script_mode import create
from test_spot import END, INTERRUPTION, chaos, spot, statuses

PYTORCH = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0.1-cpu-py310"
SDK_V2 = pathlib.Path(__file__).with_name("sdk_v2_train.py")
SCRIPT = pathlib.Path(__file__).with_name("mnist_ddp.py").read_text()


@pytest.fixture(scope="module")
def digits(house, jobs):
    """The channel with MNIST, where PyTorch's environment is there already: it is 5.6 GB."""
    if not house.has_environment("pytorch"):
        pytest.skip("needs the PyTorch environment: shoal env-cache prepare pytorch")
    for name, content in data.mnist().items():
        jobs.put(f"mnist/{name}", content)
    return jobs.channel("train", "mnist")


def trained(jobs, digits, distribution, instances, backend):
    """Trains, and checks the ranks, and the losses against those of one process."""
    given = {distribution: "true", "backend": json.dumps(backend), "steps": "80"}
    name = create(
        jobs, {"train.py": SCRIPT}, image=PYTORCH, instances=instances, channels=[digits], hyperparameters=given
    )
    has_trained(jobs, name, instances, backend)
    return name


def has_trained(jobs, name, instances, backend):
    jobs.completed(name)
    for rank in range(instances):
        assert f"{backend}: rank {rank} of {instances} on algo-{rank + 1}" in jobs.lines(name, f"algo-{rank + 1}")
    losses = json.loads(jobs.artifact(name)["losses.json"])
    assert losses["of_all"] == pytest.approx(losses["alone"], rel=2e-3)
    assert losses["of_all"][-1] < 0.5 < losses["of_all"][0]


def by_sdk_v2(house, directory, estimator, each, script, *channel):
    """Starts a job with each of these arguments of the estimator; gives their names."""
    (directory / "train.py").write_text(script)
    command = ["exec", "--", sys.executable, str(SDK_V2), estimator, json.dumps(each), str(directory), *channel]
    run = house.shoal(*command, cwd=directory, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("instances", [pytest.param(2, marks=pytest.mark.targets), 4])
def test_torchrun_on_several_instances(jobs, digits, instances):
    name = trained(jobs, digits, "sagemaker_torch_distributed_enabled", instances, "gloo")
    started = next(line for line in jobs.logs(name)["algo-2"] if "Invoking script" in line)
    # On a cluster each job has ports of its own.
    command = rf"torchrun --nnodes {instances} --nproc_per_node 1 --master_addr algo-1 --master_port \d+ --node_rank 1 train.py --backend gloo"
    assert re.search(command, started), started


def test_a_process_of_torchruns_that_raises_gives_the_reason(jobs, digits):
    given = {"sagemaker_torch_distributed_enabled": "true"}
    reason = jobs.failed(
        create(jobs, {"train.py": "raise ValueError('no column price')"}, image=PYTORCH, hyperparameters=given)
    )
    assert 'ErrorMessage "Traceback (most recent call last):\n  File "/opt/ml/code/train.py", line 1' in reason, reason
    assert 'ValueError: no column price"\nCommand "torchrun --nnodes 1 --nproc_per_node 1 train.py"' in reason, reason


# Instance types are those that the SDK allows.
SDK_V2_DISTRIBUTIONS = [
    ("ml.g5.xlarge", {"torch_distributed": {"enabled": True}}, "gloo"),
    ("ml.p3.16xlarge", {"pytorchddp": {"enabled": True}}, "shoal"),
    ("ml.p3.16xlarge", {"smdistributed": {"dataparallel": {"enabled": True}}}, "smddp"),
]


def test_sdk_v2_trains_with_each_distribution_on_two_instances(house, jobs, digits, package, tmp_path):
    each = [
        {
            "framework_version": "2.0.1",
            "py_version": "py310",
            "instance_count": 2,
            "instance_type": instance_type,
            "distribution": distribution,
            "hyperparameters": {"backend": backend, "steps": 80},
        }
        for instance_type, distribution, backend in SDK_V2_DISTRIBUTIONS
    ]
    names = by_sdk_v2(house, tmp_path, "PyTorch", each, SCRIPT, f"s3://{BUCKET}/mnist")
    for name, (_, _, backend) in zip(names, SDK_V2_DISTRIBUTIONS, strict=True):
        has_trained(jobs, name, 2, backend)


def test_ddp_that_was_interrupted_is_as_accurate_as_the_undisturbed_one(jobs, digits):
    if "SHOAL_TEST_ALL" not in os.environ:
        pytest.skip(
            "needs `cargo xtask test --all`: it takes a minute, and test_spot.py interrupts a smaller program at every run"
        )

    def start(wait_at):
        given = {
            "backend": '"gloo"',
            "steps": "60",
            "checkpoint": '"/opt/ml/checkpoints/state.pt"',
            "wait-at": str(wait_at),
        }
        return create(
            jobs,
            {"train.py": SCRIPT},
            image=PYTORCH,
            instances=2,
            channels=[digits],
            metrics=[("accuracy", r"accuracy=([0-9.]+);")],
            hyperparameters={"sagemaker_torch_distributed_enabled": "true", **given},
            **spot(f"spot/ddp-{wait_at}"),
        )

    # There is no step 60 to wait at.
    undisturbed = start(60)
    assert statuses(jobs.completed(undisturbed)) == END
    name = start(45)
    for rank in (0, 1):
        jobs.saying(name, f"rank {rank} waits at step 45", f"algo-{rank + 1}")
    chaos(jobs, name)
    assert statuses(jobs.completed(name)) == INTERRUPTION + END
    assert "rank 1 goes on at step 40" in jobs.lines(name, "algo-2")
    assert jobs.metrics(name) == jobs.metrics(undisturbed) and jobs.metrics(name)["accuracy"] > 0.8
    # Bit for bit: the losses of all 60 steps, and the weights.
    losses, expected = (json.loads(jobs.artifact(each)["losses.json"])["of_all"] for each in (name, undisturbed))
    assert len(losses) == 60
    assert [(at, *pair) for at, pair in enumerate(zip(losses, expected, strict=True)) if pair[0] != pair[1]] == []
    assert jobs.artifact(name) == jobs.artifact(undisturbed)


def test_a_script_for_smdistributed_dataparallel_on_four_instances(jobs, digits, package):
    trained(jobs, digits, "sagemaker_distributed_dataparallel_enabled", 4, "smddp")


def test_a_server_without_the_package_says_what_to_do(new_house):
    jobs = Jobs(new_house("--python-package", "none"))
    name = create(
        jobs,
        {"train.py": SCRIPT},
        image=PYTORCH,
        hyperparameters={"sagemaker_distributed_dataparallel_enabled": "true"},
    )
    reason = jobs.failed(name)
    assert (
        "smdistributed.dataparallel is served by Shoal's Python package, and this server has none: build its wheel"
        in reason
    ), reason
