"""PyTorch's own parallelism on Shoal's process groups, as a SageMaker training job: every case
of torch_parallel.py on 2 instances, and on 4 with `cargo xtask test --all`.
"""

import json
import os
import pathlib

import pytest
from test_distributions import PYTORCH
from test_script_mode import create

SCRIPT = pathlib.Path(__file__).with_name("torch_parallel.py").read_text()
CASES = {
    "ddp",
    "uneven_inputs",
    "zero",
    "fsdp1",
    "fsdp2",
    "tensor_parallel",
    "loss_parallel",
    "dtensor",
    "meshes",
    "pipelines",
    "traced_pipeline",
    "two_at_once",
    "checkpoints",
}


@pytest.mark.parametrize("instances", [2, 4])
def test_torchs_own_parallelism_is_as_one_process(house, jobs, package, instances):
    if instances > 2 and "SHOAL_TEST_ALL" not in os.environ:
        pytest.skip("needs `cargo xtask test --all`: it takes a minute")
    if not house.has_environment("pytorch"):
        pytest.skip("needs the PyTorch environment: shoal env-cache prepare pytorch")
    given = {"sagemaker_torch_distributed_enabled": "true", "backend": '"shoal"'}
    name = create(jobs, {"train.py": SCRIPT}, image=PYTORCH, instances=instances, hyperparameters=given)
    jobs.completed(name)
    most = json.loads(jobs.artifact(name)["cases.json"])
    assert set(most) == CASES and all(it < 2e-4 for it in most.values())
    # On four ranks the parameters of one process are reached by other sums: no case compares
    # nothing.
    assert all(f"{case}: on {instances} ranks as on one" in "\n".join(jobs.lines(name)) for case in CASES)
