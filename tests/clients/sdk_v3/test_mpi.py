"""ModelTrainer with MPI(): the SDK's own drivers but its mpi_driver.py, which wants sshd."""

import pytest
from sagemaker.core.training.configs import Compute, SourceCode, StoppingCondition
from sagemaker.core.utils.exceptions import FailedStatusError
from sagemaker.train import ModelTrainer
from sagemaker.train.distributed import MPI

SCRIPT = """
import argparse, os
from mpi4py import MPI
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--name")
arguments = parser.parse_args()
comm = MPI.COMM_WORLD
total = comm.allreduce(comm.rank + 1)
if arguments.name == "fails" and comm.rank == 3:
    raise ValueError("no more rows")
comm.Barrier()
print(f"rank {comm.rank} of {comm.size} on {os.environ['SM_CURRENT_HOST']}: {total} {arguments.epochs} {arguments.name} {os.environ['GIVEN']}")
"""
REQUIREMENTS = "mpi4py==4.1.2\nopenmpi==5.0.11\n"


@pytest.fixture
def train(environment, jobs, tmp_path):
    for name, text in (("train.py", SCRIPT), ("requirements.txt", REQUIREMENTS)):
        (tmp_path / name).write_text(text)
    (tmp_path / "lock.txt").write_text(REQUIREMENTS)
    jobs.house.shoal("image", "add", "mpi", "--python", "3.11,3.12,3.13,3.10", "--lock", str(tmp_path / "lock.txt"))
    (tmp_path / "lock.txt").unlink()

    def train(**hyperparameters):
        trainer = ModelTrainer(
            training_image="mpi",
            source_code=SourceCode(source_dir=str(tmp_path), entry_script="train.py"),
            compute=Compute(instance_type="ml.m5.large", instance_count=2),
            distributed=MPI(process_count_per_node=2, mpi_additional_options=["-x", "GIVEN=a b"]),
            stopping_condition=StoppingCondition(max_runtime_in_seconds=300),
            hyperparameters=hyperparameters,
            base_job_name="v3-mpi",
        )
        trainer.train(wait=True, logs=True)
        return trainer._latest_training_job

    return train


def test_ranks_on_two_instances(train, jobs):
    job = train(epochs=3, name="plain words")
    assert job.training_job_status == "Completed"
    lines = jobs.lines(job.training_job_name)
    for rank, host in enumerate(["algo-1", "algo-1", "algo-2", "algo-2"]):
        assert f"[1,mpirank:{rank},{host}]<stdout>:rank {rank} of 4 on {host}: 10 3 plain words a b" in lines, lines


def test_a_rank_that_fails(train):
    with pytest.raises(FailedStatusError, match=r"(?s)ValueError: no more rows\n\(rank 3 on algo-2\)"):
        train(epochs=3, name="fails")
