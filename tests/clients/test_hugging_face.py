"""The HuggingFace estimator of SageMaker's Python SDK, version 2: a script with Hugging Face's
Trainer, on one, two and four instances.
"""

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


def test_trainer_learns_the_same_on_one_two_and_four_instances(house, jobs, tmp_path, hugging_face):
    given = {
        "transformers_version": "4.28.1",
        "pytorch_version": "2.0.0",
        "py_version": "py310",
        "instance_type": "ml.g5.xlarge",
        "hyperparameters": {"epochs": 3, "train_batch_size": 32},
        "metric_definitions": [{"Name": "eval_accuracy", "Regex": r"eval_accuracy=([0-9.]+);"}],
        "environment": {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    }
    distribution = {"distribution": {"torch_distributed": {"enabled": True}}}
    counts = (1, 2, 4)
    each = [{**given, "instance_count": instances, **(distribution if instances > 1 else {})} for instances in counts]
    names = by_sdk_v2(house, tmp_path, "HuggingFace", each, SCRIPT)
    losses = []
    for instances, name in zip(counts, names, strict=True):
        jobs.completed(name)
        for rank in range(instances):
            assert f"process {rank} of {instances} on algo-{rank + 1}" in jobs.lines(name, f"algo-{rank + 1}")
        assert jobs.metrics(name)["eval_accuracy"] > 0.9
        assert "model.safetensors" in jobs.artifact(name)
        losses.append(json.loads(jobs.artifact(name, "output")["history.json"]))
    alone, *together = losses
    assert alone[-1] < 0.5 < alone[0]
    for found in together:
        assert found == pytest.approx(alone, rel=1e-3)
