"""DeepSpeed over PyTorch's environment: ZeRO on four instances by torchrun, and on two by
DeepSpeed's own launcher.
"""

import json
import os
import pathlib

import data
import pytest
from jobs import Jobs
from test_distributions import PYTORCH
from test_script_mode import create

HERE = pathlib.Path(__file__).parent
FILES = {"train.py": (HERE / "mnist_deepspeed.py").read_text(), "mnist_ddp.py": (HERE / "mnist_ddp.py").read_text()}

# DeepSpeed's launcher on each instance, without ssh: it is told all hosts, and which one this is.
LAUNCHER = """
echo "$SM_HOSTS" | tr -d '[]" ' | tr , '\\n' | sed 's/$/ slots=1/' > /tmp/hosts
number=$(grep -n "^$SM_CURRENT_HOST " /tmp/hosts | cut -d: -f1)
exec deepspeed --hostfile /tmp/hosts --no_ssh --node_rank $((number - 1)) --master_addr "$MASTER_ADDR" train.py "$@"
"""


@pytest.fixture(scope="module")
def jobs(make_house):
    """Of a server with a wheel house: the package index has DeepSpeed as a source alone."""
    wheels = pathlib.Path(os.environ.get("SHOAL_CACHE", pathlib.Path.home() / ".cache/shoal")) / "wheels"
    if not any(wheels.glob("deepspeed-0.19.8-cp*.whl")):
        pytest.skip("needs a wheel of DeepSpeed 0.19.8: docs/distributions.md tells how it is built")
    house = make_house("--wheel-house", str(wheels))
    if not house.has_environment("pytorch"):
        pytest.skip("needs the PyTorch environment: shoal env-cache prepare pytorch")
    return Jobs(house)


def test_zero_shares_the_state_and_has_the_losses_of_one_process(jobs):
    for name, content in data.mnist().items():
        jobs.put(f"mnist/{name}", content)
    files = {**FILES, "requirements.txt": "deepspeed==0.19.8\n"}
    given = {"image": PYTORCH, "channels": [jobs.channel("train", "mnist")]}
    hyperparameters = {"steps": "20", "batch_size": "128"}
    torchrun = create(
        jobs,
        files,
        instances=4,
        hyperparameters={"sagemaker_torch_distributed_enabled": "true", **hyperparameters},
        **given,
    )
    launcher = create(
        jobs, {**files, "run.sh": LAUNCHER}, program="run.sh", instances=2, hyperparameters=hyperparameters, **given
    )
    for name, instances in ((torchrun, 4), (launcher, 2)):
        jobs.completed(name)
        for rank in range(instances):
            # Adam has two numbers for each weight.
            said = f"rank {rank} of {instances} on algo-{rank + 1}: state of {2 / instances:.2f} numbers for a weight"
            assert said in jobs.lines(name, f"algo-{rank + 1}"), jobs.logs(name)
        losses = json.loads(jobs.artifact(name)["losses.json"])
        assert losses["of_all"] == pytest.approx(losses["alone"], rel=2e-3)
        assert losses["of_all"][-1] < 1 < losses["of_all"][0]
