"""ModelTrainer with source code: the SDK's own driver scripts run in our instances, by the image that runs what it is told to."""

import pytest
from sagemaker.core.training.configs import Compute, InputData, SourceCode, StoppingCondition
from sagemaker.core.utils.exceptions import FailedStatusError
from sagemaker.train import ModelTrainer

SCRIPT = """
import argparse, json, os, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--name")
arguments = parser.parse_args()
rows = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"], "rows.csv").read_text().split()
if arguments.name == "fails":
    raise SystemExit(3)
for epoch in range(arguments.epochs):
    print(f"epoch {epoch} loss: {1 / (epoch + 1)}")
pathlib.Path(os.environ["SM_MODEL_DIR"], "model.json").write_text(json.dumps({"rows": len(rows), "name": arguments.name}))
"""


@pytest.fixture
def trainer(environment, tmp_path):
    for name, text in (("src/train.py", SCRIPT), ("data/rows.csv", "1\n2\n3\n")):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(text)

    def trainer(**hyperparameters):
        return ModelTrainer(
            training_image="shoal/host",
            source_code=SourceCode(source_dir=str(tmp_path / "src"), entry_script="train.py"),
            compute=Compute(instance_type="ml.m5.large", instance_count=1),
            stopping_condition=StoppingCondition(max_runtime_in_seconds=300),
            hyperparameters=hyperparameters,
            base_job_name="v3",
        )

    return trainer, [InputData(channel_name="train", data_source=str(tmp_path / "data"))]


def test_train_streams_logs_and_leaves_a_model(trainer, jobs, caplog):
    caplog.set_level("INFO")
    make, inputs = trainer
    trained = make(epochs=3, name="plain words")
    trained.train(input_data_config=inputs, wait=True, logs=True)
    job = trained._latest_training_job
    assert job.training_job_status == "Completed"
    assert "epoch 2 loss: 0.333" in caplog.text and "Training Container Execution Completed" in caplog.text
    bucket, key = job.model_artifacts.s3_model_artifacts.removeprefix("s3://").split("/", 1)
    assert jobs.s3.head_object(Bucket=bucket, Key=key)["ContentLength"] > 0


def test_a_failure_says_what_the_sdks_driver_says(trainer):
    make, inputs = trainer
    with pytest.raises(FailedStatusError, match="exit code"):
        make(epochs=1, name="fails").train(input_data_config=inputs, wait=True, logs=False)
