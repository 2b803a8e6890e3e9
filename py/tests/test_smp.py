"""`smdistributed.modelparallel.torch` on two and four ranks: as one process with the same global batch would."""

import json

import pytest
import torch_ranks
from torch_ranks import Ranks

pytestmark = torch_ranks.needs_torch()

TWO = {
    "smp_training": ["pipelines", "by_hand", "data_parallel", "tensor", "replaced", "half", "checkpointed"],
    "smp_calls": ["configuration", "objects", "steps", "numbers", "bubble", "checkpoints", "scaler", "translated", "mnist_script", "gpt_script", "hooks"],
}
FOUR = {"smp_four": ["places", "layouts", "resharded"]}


def _started(size: int):
    made: list[Ranks] = []

    def ranks() -> Ranks:
        if not made or not made[-1].living():
            made.append(Ranks(size))
        return made[-1]

    yield ranks
    for it in made:
        it.end()


@pytest.fixture(scope="module")
def two():
    yield from _started(2)


@pytest.fixture(scope="module")
def four():
    yield from _started(4)


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in TWO.items() for name in names])
def test_on_two_ranks(two, module, name):
    two().check(module, name)


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in FOUR.items() for name in names])
def test_on_four_ranks(four, module, name):
    four().check(module, name)


def test_a_rank_that_fails_or_is_gone_is_told(two):
    # The last of these tests, since it leaves no pair behind.
    pair = two()
    pair.check("smp_failures", "failures")
    for process in pair.processes:
        process.stdin.write(json.dumps(["smp_failures", "gone"]) + "\n")
        process.stdin.flush()
    # The other one says nothing more.
    answer = pair.answer(0)
    assert answer["ok"], answer
