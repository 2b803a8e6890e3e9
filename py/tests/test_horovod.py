"""`horovod.torch` as Horovod's programs use it: real processes, real tensors."""

import pytest
import torch_ranks

pytestmark = torch_ranks.needs_torch()

OPERATIONS = [
    "process",
    "all_reduce",
    "groups_and_handles",
    "grouped_handles",
    "timeline",
    "gathers",
    "scatters",
    "gradients",
    "mistakes",
    "join",
    "process_sets",
    "adasum",
    "devices",
]
TRAINING = ["optimizer", "optimizer_rules", "branches", "sparse", "adasum_optimizer", "state", "batch_norm", "again"]


class Ranks(torch_ranks.Ranks):
    """Ranks of a Horovod program."""

    PROGRAM = "horovod_rank.py"


@pytest.fixture(scope="module")
def ranks():
    with torch_ranks.kept(Ranks) as ranks:
        yield ranks


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(ranks, size, name):
    ranks(size).check("horovod_operations", name)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", TRAINING)
def test_training(ranks, size, name):
    ranks(size).check("horovod_training", name)
