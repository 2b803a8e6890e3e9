"""Training by `shoal.torch` on two ranks: as one process with the same global batch would."""

import re
from pathlib import Path

import pytest
import torch_ranks
from torch_ranks import Ranks

pytestmark = torch_ranks.needs_torch()

TRAINING = [
    "ddp",
    "ddp_with_batch_norm",
    "zero",
    "fsdp1",
    "fsdp2",
    "hooks",
    "distributed_optimizer",
    "distributed_optimizer_over_several_passes",
]


@pytest.fixture(scope="module")
def ranks():
    with torch_ranks.kept() as ranks:
        yield ranks


@pytest.mark.parametrize("name", TRAINING)
def test_training(ranks, name):
    ranks().check("torch_training", name)


EXAMPLE = Path(__file__).parents[1] / "examples/mnist_ddp.py"
MNIST = Path(__file__).parents[3] / "shared/data/mnist"


@pytest.mark.skipif(not MNIST.is_dir(), reason="needs ../shared/data: no mnist")
def test_hooks_train_and_send_what_they_say():
    pair = Ranks(2, SHOAL_COMM_TRANSPORT="tcp", MNIST=str(MNIST))
    pair.check("torch_training", "hooks_on_mnist")
    pair.end()


@pytest.mark.skipif(not MNIST.is_dir(), reason="needs ../shared/data: no mnist")
def test_mnist_on_two_ranks_is_as_on_one():
    losses = {}
    for size in (1, 2):
        port = torch_ranks.free_port()
        program = [str(EXAMPLE), "--data", str(MNIST), "--steps", "41", "--batch", "64"]
        processes = [torch_ranks.start(rank, size, port, *program) for rank in range(size)]
        output = processes[0].communicate(timeout=torch_ranks.PATIENCE_S)[0]
        codes = [process.wait(torch_ranks.PATIENCE_S) for process in processes]
        assert codes == [0] * size, [torch_ranks.said(process) for process in processes]
        losses[size] = [float(value) for value in re.findall(r"loss=([0-9.]+)", output)]
        assert float(re.search(r"accuracy=([0-9.]+)", output)[1]) > 0.75, output
    assert len(losses[1]) == 3 and losses[1][2] < losses[1][0] / 2
    assert losses[2] == pytest.approx(losses[1], rel=1e-3)
