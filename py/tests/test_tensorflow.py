"""`horovod.tensorflow`, `horovod.keras`, `shoal.keras` and SageMaker's library for TensorFlow, on two ranks."""

import os
import queue
import subprocess
import tempfile
import threading
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


def _python() -> str | None:
    """An interpreter that has TensorFlow: that of $SHOAL_TENSORFLOW_PYTHON, or with `cargo xtask test --all` that of its environment."""
    cache = Path(os.environ.get("SHOAL_CACHE") or Path.home() / ".cache/shoal")
    cached = cache.glob("environments/tensorflow-*/bin/python") if "SHOAL_TEST_ALL" in os.environ else ()
    for python in [os.environ.get("SHOAL_TENSORFLOW_PYTHON"), *map(str, cached)]:
        find = "import importlib.util as it, sys; sys.exit(it.find_spec('tensorflow') is None or it.find_spec('keras') is None)"
        if python and subprocess.run([python, "-c", find], capture_output=True).returncode == 0:
            return python
    return None


PYTHON = _python()
pytestmark = pytest.mark.skipif(PYTHON is None, reason="needs `cargo xtask test --all`, or an interpreter with TensorFlow in SHOAL_TENSORFLOW_PYTHON")


class Ranks(torch_ranks.Ranks):
    """Two ranks with TensorFlow, as `horovodrun` starts them."""

    def __init__(self):
        port = str(torch_ranks.free_port())
        place = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": port, "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_SIZE": "2"}
        self.processes = []
        for rank in ("0", "1"):
            more = {**place, "HOROVOD_RANK": rank, "HOROVOD_LOCAL_RANK": rank, "HOROVOD_CROSS_RANK": "0", "HOROVOD_CROSS_SIZE": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
            program, errors = str(torch_ranks.HERE / "tensorflow_rank.py"), tempfile.TemporaryFile("w+")
            streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors, "text": True}
            self.processes.append(subprocess.Popen([PYTHON, program], env={**torch_ranks.environment(), **more}, **streams))
            self.processes[-1].errors = errors
        self.lines = [queue.Queue() for _ in self.processes]
        for process, lines in zip(self.processes, self.lines, strict=True):
            threading.Thread(target=lambda it=process, to=lines: [*map(to.put, it.stdout), to.put("")], daemon=True).start()
        for rank in range(2):
            self.answer(rank)


@pytest.fixture(scope="module")
def ranks():
    """Two ranks; new ones after a failure."""
    made: list[Ranks] = []

    def pair() -> Ranks:
        if not made or not made[-1].living():
            made.append(Ranks())
        return made[-1]

    yield pair
    for it in made:
        it.end()


@pytest.mark.parametrize("name", CHECKS)
def test_tensorflow(ranks, name):
    ranks().check("tensorflow_checks", name)
