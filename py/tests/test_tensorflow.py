"""`horovod.tensorflow`, `horovod.keras`, `shoal.keras` and SageMaker's library for TensorFlow,
on two ranks.
"""

import os
import subprocess
from pathlib import Path

import pytest
import torch_ranks

CHECKS = [
    "collectives",
    "gradients_of_collectives",
    "mistakes_are_named",
    "tapes",
    "aggregation",
    "loss_scale",
    "large_batch",
    "training_with_callbacks",
    "saved_models",
    "sync_batch_norm",
    "sessions",
    "many_in_a_session",
    "states",
    "sagemaker",
    "joined",
]
#: Each of `tensorflow_keras_checks`; the last begins a new world.
KERAS_CHECKS = [
    "partial_tape",
    "partial_optimizer",
    "grouped",
    "best_model",
    "keras_module",
    "elastic_callbacks",
    "elastic_run",
]


def _python() -> str | None:
    """An interpreter that has TensorFlow: that of $SHOAL_TENSORFLOW_PYTHON, or with
    `cargo xtask test --all` that of its environment.
    """
    cache = Path(os.environ.get("SHOAL_CACHE") or Path.home() / ".cache/shoal")
    cached = cache.glob("environments/tensorflow-*/bin/python") if "SHOAL_TEST_ALL" in os.environ else ()
    for python in [os.environ.get("SHOAL_TENSORFLOW_PYTHON"), *map(str, cached)]:
        find = "import importlib.util as it, sys; sys.exit(it.find_spec('tensorflow') is None or it.find_spec('keras') is None)"
        if python and subprocess.run([python, "-c", find], capture_output=True).returncode == 0:
            return python
    return None


PYTHON = _python()
WITHOUT = "needs `cargo xtask test --all`, or an interpreter with TensorFlow in SHOAL_TENSORFLOW_PYTHON"
pytestmark = pytest.mark.skipif(PYTHON is None, reason=WITHOUT)


class Ranks(torch_ranks.Ranks):
    """Ranks with TensorFlow, as `horovodrun` starts them."""

    def start(self, rank: int, size: int, port: int, **more: str) -> subprocess.Popen:
        """A rank's process."""
        place = {"RANK": rank, "SIZE": size, "LOCAL_RANK": rank, "LOCAL_SIZE": size, "CROSS_RANK": 0, "CROSS_SIZE": 1}
        place |= {"GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "GLOO_RENDEZVOUS_PORT": port}
        told = {f"HOROVOD_{name}": str(it) for name, it in place.items()}
        return torch_ranks.spawn(
            PYTHON, str(torch_ranks.HERE / "tensorflow_rank.py"), TF_CPP_MIN_LOG_LEVEL="3", **told, **more
        )


@pytest.fixture(scope="module")
def ranks():
    with torch_ranks.kept(Ranks) as ranks:
        yield ranks


@pytest.mark.parametrize("name", CHECKS)
def test_tensorflow(ranks, name):
    ranks().check("tensorflow_checks", name)


@pytest.mark.parametrize("name", KERAS_CHECKS)
def test_keras(ranks, name):
    ranks().check("tensorflow_keras_checks", name)
