"""ModelTrainer with Torchrun(): the SDK's own driver starts the real torchrun of the PyTorch
environment.
"""

import pathlib

import data
import pytest
from sagemaker.core.training.configs import Compute, InputData, SourceCode, StoppingCondition
from sagemaker.train import ModelTrainer
from sagemaker.train.distributed import Torchrun

PYTORCH = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0.1-cpu-py310"
SCRIPT = pathlib.Path(__file__).parents[1] / "mnist_ddp.py"


@pytest.mark.parametrize("instances, processes", [(1, 2), (2, 1)])
def test_torchrun(environment, house, jobs, tmp_path, instances, processes):
    if not house.has_environment("pytorch"):
        pytest.skip("needs the PyTorch environment: shoal env-cache prepare pytorch")
    for directory, files in {"source": {"train.py": SCRIPT.read_bytes()}, "data": data.mnist()}.items():
        (tmp_path / directory).mkdir()
        for name, content in files.items():
            (tmp_path / directory / name).write_bytes(content)
    trainer = ModelTrainer(
        training_image=PYTORCH,
        source_code=SourceCode(source_dir=str(tmp_path / "source"), entry_script="train.py"),
        distributed=Torchrun(process_count_per_node=processes),
        compute=Compute(instance_type="ml.m5.large", instance_count=instances),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=600),
        hyperparameters={"backend": "gloo", "steps": 40},
        base_job_name="torchrun",
    )
    channel = InputData(channel_name="train", data_source=str(tmp_path / "data"))
    trainer.train(input_data_config=[channel], wait=True, logs=False)
    name = trainer._latest_training_job.training_job_name
    for rank in range(2):
        host = f"algo-{rank + 1 if instances == 2 else 1}"
        lines = jobs.lines(name, host)
        assert any(f"gloo: rank {rank} of 2 on {host}" in line for line in lines), lines
    assert any("accuracy=" in line for line in jobs.lines(name)), jobs.lines(name)
