"""`shoal.torch` as PyTorch programs use it: real processes, real tensors."""

import pytest
import torch_ranks
from torch_ranks import Ranks

pytestmark = torch_ranks.needs_torch()

COLLECTIVES = [
    "all_reduce",
    "all_reduce_of_all_sorts",
    "works",
    "futures",
    "reduce_and_broadcast",
    "all_gather",
    "reduce_scatter",
    "gather_and_scatter",
    "all_to_all",
    "messages",
    "objects",
    "barriers",
    "groups",
    "coalesced",
    "functional",
    "registered",
    "mistakes",
]

GROUPS = [
    "nested_futures",
    "sparse",
    "splits",
    "groups_of_one_name",
    "alone",
    "of_gpus_alone",
    "sequence_numbers",
    "profiled",
    "monitored",
]


@pytest.fixture(scope="module")
def ranks():
    with torch_ranks.kept() as ranks:
        yield ranks


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives(ranks, size, name):
    ranks(size).check("torch_collectives", name)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", GROUPS)
def test_groups(ranks, size, name):
    ranks(size).check("torch_groups", name)


def test_collectives_in_debug_mode():
    pair = Ranks(2, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    for name in ("all_reduce", "reduce_and_broadcast", "all_gather", "barriers", "groups"):
        pair.check("torch_collectives", name)
    pair.end()
