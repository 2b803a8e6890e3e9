"""Whatever waits in SDK v3 looks often enough to return soon after the job's end."""

import pytest
from sagemaker.core.parameter import ContinuousParameter
from sagemaker.core.resources import TrainingJob
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, SourceCode
from sagemaker.train.tuner import HyperparameterTuner


@pytest.fixture
def trainer(environment, tmp_path):
    (tmp_path / "train.py").write_text("import time\nprint('loss: 0.5', flush=True)\ntime.sleep(2)\n")
    return ModelTrainer(
        training_image="shoal/host",
        source_code=SourceCode(source_dir=str(tmp_path), entry_script="train.py"),
        compute=Compute(instance_type="ml.m5.large", instance_count=1),
        base_job_name="waits",
    )


@pytest.mark.parametrize("logs", [True, False])
def test_train(trainer, turns, logs):
    trainer.train(wait=True, logs=logs)
    turns.check()


def test_wait_of_a_job_that_was_found(trainer, turns):
    trainer.train(wait=False)
    TrainingJob.get(training_job_name=trainer._latest_training_job.training_job_name).wait()
    turns.check()


def test_the_tuners_wait(trainer, turns):
    tuner = HyperparameterTuner(
        model_trainer=trainer,
        objective_metric_name="loss",
        hyperparameter_ranges={"x": ContinuousParameter(0, 1)},
        metric_definitions=[{"Name": "loss", "Regex": r"loss: (\S+)"}],
        objective_type="Minimize",
        max_jobs=1,
        max_parallel_jobs=1,
        base_tuning_job_name="waits",
    )
    tuner.tune(wait=True)
    turns.check()
