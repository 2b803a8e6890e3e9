"""The HuggingFace estimator of SageMaker's Python SDK, version 2: a script with Hugging Face's Trainer, on one instance and on two."""

import json
import pathlib

import pytest
from test_distributions import by_sdk_v2

SCRIPT = pathlib.Path(__file__).with_name("bert_trainer.py").read_text()


@pytest.fixture(scope="module")
def hugging_face(house):
    """Where its environment is there already: it is 5.9 GiB."""
    if not house.has_environment("huggingface"):
        pytest.skip("needs the Hugging Face environment: shoal env-cache prepare huggingface")


def test_trainer_learns_the_same_on_one_instance_and_on_two(house, jobs, tmp_path, hugging_face):
    given = {
        "transformers_version": "4.28.1",
        "pytorch_version": "2.0.0",
        "py_version": "py310",
        "instance_type": "ml.g5.xlarge",
        "hyperparameters": {"epochs": 4, "train_batch_size": 32},
        "metric_definitions": [{"Name": "eval_accuracy", "Regex": r"eval_accuracy=([0-9.]+);"}],
        "environment": {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    }
    several = {"instance_count": 2, "distribution": {"torch_distributed": {"enabled": True}}}
    names = by_sdk_v2(house, tmp_path, "HuggingFace", [{**given, "instance_count": 1}, {**given, **several}], SCRIPT)
    losses = []
    for instances, name in enumerate(names, 1):
        jobs.completed(name)
        for rank in range(instances):
            assert f"process {rank} of {instances} on algo-{rank + 1}" in jobs.lines(name, f"algo-{rank + 1}")
        assert jobs.metrics(name)["eval_accuracy"] > 0.9
        assert "model.safetensors" in jobs.artifact(name)
        losses.append(json.loads(jobs.artifact(name, "output")["history.json"]))
    assert losses[1] == pytest.approx(losses[0], rel=1e-3) and losses[0][-1] < 0.5 < losses[0][0]
