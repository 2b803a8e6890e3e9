"""ModelTrainer with source code: the SDK's own driver scripts run in our instances, by the image
that runs what it is told to.
"""

import tarfile

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


SCIKIT_LEARN = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"


@pytest.mark.parametrize("archived", [False, True], ids=["directory", "archive"])
def test_the_image_of_a_framework_with_requirements_on_top(environment, tmp_path, caplog, archived):
    """The driver's own pip finds that all is there."""
    caplog.set_level("INFO")
    (tmp_path / "train.py").write_text(
        "import sklearn, tabulate\nprint('found', sklearn.__version__, tabulate.__version__)\n"
    )
    (tmp_path / "more.txt").write_text("tabulate==0.9.0\n")
    source = tmp_path
    if archived:
        source = tmp_path / "source.tar.gz"
        with tarfile.open(source, "w:gz") as tar:
            for name in ("train.py", "more.txt"):
                tar.add(tmp_path / name, name)
    trainer = ModelTrainer(
        training_image=SCIKIT_LEARN,
        source_code=SourceCode(source_dir=str(source), entry_script="train.py", requirements="more.txt"),
        compute=Compute(instance_type="ml.m5.large", instance_count=1),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=300),
        base_job_name="v3",
    )
    trainer.train(wait=True, logs=True)
    assert trainer._latest_training_job.training_job_status == "Completed"
    assert "Requirement already satisfied: tabulate==0.9.0" in caplog.text and "found 1.2.2 0.9.0" in caplog.text
