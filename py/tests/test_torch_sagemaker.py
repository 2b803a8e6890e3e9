"""`torch.sagemaker` on two ranks: as PyTorch without it, in one process with all samples."""

import subprocess

import pytest
import torch_ranks
from torch_ranks import Ranks

pytestmark = torch_ranks.needs_torch()

CHECKS = [
    "config",
    "sharding",
    "offloading",
    "delayed",
    "tensor_parallel",
    "tensor_parallel_without_orig_params",
    "tensor_parallel_from_rank0",
    "refusals",
    "attention",
    "helpers",
]
CHECKPOINTS = ["checkpoints", "local_checkpoints"]


@pytest.fixture(scope="module")
def ranks():
    with torch_ranks.kept() as ranks:
        yield ranks


@pytest.mark.parametrize("name", CHECKS)
def test_torch_sagemaker(ranks, name):
    ranks().check("torch_sagemaker_checks", name)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_torch_sagemaker_checkpoints(ranks, name):
    ranks().check("torch_sagemaker_checkpoints", name)


def test_four_ranks_of_two_by_two():
    four = Ranks(4)
    four.check("torch_sagemaker_four", "shards_and_tensor_ranks")
    four.check("torch_sagemaker_four", "replicas_of_shards")
    four.end()


def test_the_name_is_found_when_the_backend_is_registered():
    program = "import shoal.backends; shoal.backends.register(); import torch.sagemaker as tsm; from torch.sagemaker import state; print(tsm.state is state, tsm.__name__)"
    run = subprocess.run(
        [torch_ranks.PYTHON, "-c", program], env=torch_ranks.environment(), capture_output=True, text=True, timeout=120
    )
    assert run.stdout == "True torch.sagemaker\n", run.stderr
