"""HyperparameterTuner of SDK v3, over the built-in algorithm and a program of the user's."""

import data
import pytest
from jobs import XGBOOST
from sagemaker.core.parameter import ContinuousParameter, IntegerParameter
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData, SourceCode, StoppingCondition
from sagemaker.train.tuner import HyperparameterTuner
from tuning_jobs import BOWL


@pytest.fixture
def trainer(environment):
    def trainer(image, **options):
        return ModelTrainer(
            training_image=image,
            compute=Compute(instance_type="ml.m5.large", instance_count=1, volume_size_in_gb=30),
            stopping_condition=StoppingCondition(max_runtime_in_seconds=300),
            base_job_name="v3",
            **options,
        )

    return trainer


def test_tune_the_built_in_algorithm(trainer, jobs):
    inputs = []
    for name, rows in (("train", data.rows(500, 1)), ("validation", data.rows(300, 2))):
        uri = jobs.put(f"v3/{name}/all.csv", data.as_csv(rows)).rsplit("/", 1)[0]
        inputs.append(InputData(channel_name=name, data_source=uri, content_type="text/csv"))
    tuner = HyperparameterTuner(
        model_trainer=trainer(XGBOOST, hyperparameters={"objective": "binary:logistic", "num_round": "6"}),
        objective_metric_name="validation:auc",
        hyperparameter_ranges={"eta": ContinuousParameter(0.05, 0.9), "max_depth": IntegerParameter(1, 5)},
        objective_type="Maximize",
        max_jobs=4,
        max_parallel_jobs=2,
        random_seed=7,
        base_tuning_job_name="v3",
    )
    tuner.tune(inputs=inputs, wait=True)
    told = tuner.describe()
    assert told.hyper_parameter_tuning_job_status == "Completed" and told.training_job_status_counters.completed == 4
    frame = tuner.analytics().dataframe()
    assert len(frame) == 4
    assert frame.set_index("TrainingJobName")["FinalObjectiveValue"].idxmax() == tuner.best_training_job()


def test_tune_a_program_of_the_user_s(trainer, jobs, tmp_path):
    (tmp_path / "train.py").write_text(BOWL)
    uri = jobs.put("v3/rows/rows.csv", "1\n").rsplit("/", 1)[0]
    source = SourceCode(source_dir=str(tmp_path), entry_script="train.py")
    tuner = HyperparameterTuner(
        model_trainer=trainer("shoal/host", source_code=source, hyperparameters={"epochs": "2"}),
        objective_metric_name="loss",
        hyperparameter_ranges={"x": ContinuousParameter(0, 1)},
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+);"}],
        objective_type="Minimize",
        max_jobs=3,
        max_parallel_jobs=2,
        base_tuning_job_name="v3-bowl",
    )
    tuner.tune(inputs=[InputData(channel_name="train", data_source=uri)], wait=True)
    told = tuner.describe()
    assert told.hyper_parameter_tuning_job_status == "Completed", told.failure_reason
    x = float(told.best_training_job.tuned_hyper_parameters["x"])
    value = told.best_training_job.final_hyper_parameter_tuning_job_objective_metric.value
    assert value == pytest.approx((x - 0.3) ** 2 + 0.5, abs=1e-6)


def test_stop(trainer, jobs, tmp_path):
    (tmp_path / "train.py").write_text(BOWL)
    tuner = HyperparameterTuner(
        model_trainer=trainer(
            "shoal/host",
            source_code=SourceCode(source_dir=str(tmp_path), entry_script="train.py"),
            hyperparameters={"epochs": "10000", "pause": "0.1"},
        ),
        objective_metric_name="loss",
        hyperparameter_ranges={"x": ContinuousParameter(0, 1)},
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+);"}],
        objective_type="Minimize",
        max_jobs=2,
        base_tuning_job_name="v3-stop",
    )
    tuner.tune(wait=False)
    tuner.stop_tuning_job()
    tuner.wait()
    assert tuner.describe().hyper_parameter_tuning_job_status == "Stopped"
