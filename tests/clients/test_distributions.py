"""What `distribution` starts: real torchrun of the PyTorch environment, and real training by DistributedDataParallel."""

import json
import pathlib

import data
import pytest
from house import SHOAL
from jobs import Jobs
from test_script_mode import create
from test_spot import END, INTERRUPTION, chaos, spot, statuses

PYTORCH = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0.1-cpu-py310"
SCRIPT = pathlib.Path(__file__).with_name("mnist_ddp.py").read_text()
WHEELS = SHOAL.parent.parent / "wheels"


@pytest.fixture(scope="module")
def digits(house, jobs):
    """The channel with MNIST, where PyTorch's environment is there already: it is 5.6 GB."""
    cached = [line.split() for line in house.shoal("env-cache", "list").stdout.splitlines()]
    if not any(words[0].startswith("pytorch-") and words[-1] == "ready" for words in cached):
        pytest.skip("needs the PyTorch environment: shoal env-cache prepare pytorch")
    for name, content in data.mnist().items():
        jobs.put(f"mnist/{name}", content)
    return jobs.channel("train", "mnist")


def trained(jobs, digits, distribution, instances, backend):
    """Trains, and checks the ranks, and the losses against those of one process."""
    given = {distribution: "true", "backend": json.dumps(backend), "steps": "80"}
    name = create(jobs, {"train.py": SCRIPT}, image=PYTORCH, instances=instances, channels=[digits], hyperparameters=given)
    jobs.completed(name)
    for rank in range(instances):
        assert f"{backend}: rank {rank} of {instances} on algo-{rank + 1}" in jobs.lines(name, f"algo-{rank + 1}")
    losses = json.loads(jobs.artifact(name)["losses.json"])
    assert losses["of_all"] == pytest.approx(losses["alone"], rel=2e-3)
    assert losses["of_all"][-1] < 0.5 < losses["of_all"][0]
    return name


def test_torchrun_on_two_instances(jobs, digits):
    name = trained(jobs, digits, "sagemaker_torch_distributed_enabled", 2, "gloo")
    said = next(line for line in jobs.logs(name)["algo-2"] if "Invoking script" in line)
    assert "torchrun --nnodes 2 --nproc_per_node 1 --master_addr algo-1 --master_port 7777 --node_rank 1 train.py --backend gloo" in said


def test_ddp_goes_on_after_an_interruption(jobs, digits):
    given = {"backend": '"gloo"', "steps": "60", "checkpoint": '"/opt/ml/checkpoints/state.pt"', "wait-at": "45"}
    name = create(
        jobs,
        {"train.py": SCRIPT},
        image=PYTORCH,
        instances=2,
        channels=[digits],
        hyperparameters={"sagemaker_torch_distributed_enabled": "true", **given},
        **spot("spot/ddp"),
    )
    for rank in (0, 1):
        jobs.saying(name, f"rank {rank} waits at step 45", f"algo-{rank + 1}")
    chaos(jobs, name)
    assert statuses(jobs.completed(name)) == INTERRUPTION + END
    assert "rank 1 goes on at step 40" in jobs.lines(name, "algo-2")
    losses = json.loads(jobs.artifact(name)["losses.json"])
    assert losses["of_all"] == pytest.approx(losses["alone"], rel=2e-3) and len(losses["of_all"]) == 60


def test_a_script_for_smdistributed_dataparallel_on_four_instances(jobs, digits):
    if not list(WHEELS.glob("shoal-*.whl")):
        pytest.skip("needs the wheel of the Python package: cargo xtask package")
    trained(jobs, digits, "sagemaker_distributed_dataparallel_enabled", 4, "smddp")


def test_a_server_without_the_package_says_what_to_do(new_house):
    jobs = Jobs(new_house("--python-package", "none"))
    name = create(jobs, {"train.py": SCRIPT}, image=PYTORCH, hyperparameters={"sagemaker_distributed_dataparallel_enabled": "true"})
    reason = jobs.failed(name)
    assert "smdistributed.dataparallel is served by Shoal's Python package, and this server has none: build its wheel" in reason, reason
