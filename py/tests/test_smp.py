"""`smdistributed.modelparallel.torch` on two and four ranks: as one process with the same global
batch would.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch_ranks

pytestmark = torch_ranks.needs_torch()

TWO = {
    "smp_training": ["pipelines", "by_hand", "data_parallel", "tensor", "replaced", "half", "checkpointed"],
    "smp_calls": [
        "configuration",
        "objects",
        "steps",
        "numbers",
        "bubble",
        "checkpoints",
        "scaler",
        "translated",
        "hooks",
    ],
    "smp_scripts": ["mnist_script", "gpt_script"],
}
FOUR = {"smp_four": ["places", "layouts"]}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("checkpoints"))
    with torch_ranks.kept(lambda size: torch_ranks.Ranks(size, SHOAL_TEST_FOLDER=folder)) as ranks:
        yield ranks


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in TWO.items() for name in names])
def test_on_two_ranks(ranks, module, name):
    ranks(2).check(module, name)


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in FOUR.items() for name in names])
def test_on_four_ranks(ranks, module, name):
    ranks(4).check(module, name)


def test_on_four_ranks_and_then_on_three(ranks):
    ranks(4).check("smp_four", "resharded")
    ranks(3).check("smp_four", "on_three")


def with_transformers() -> str | None:
    """An interpreter that has torch and transformers: that of $SHOAL_TORCH_PYTHON, or of the
    environment of Hugging Face's image.
    """
    cache = Path(os.environ.get("SHOAL_CACHE") or Path.home() / ".cache/shoal")
    find = "import importlib.util as it, sys; sys.exit(it.find_spec('transformers') is None or it.find_spec('torch') is None)"
    for python in [
        os.environ.get("SHOAL_TORCH_PYTHON"),
        *map(str, cache.glob("environments/huggingface-*/bin/python")),
    ]:
        if python and subprocess.run([python, "-c", find], capture_output=True).returncode == 0:
            return python
    return None


def test_gpt2_of_transformers():
    python = with_transformers()
    if python is None:
        pytest.skip("needs the Hugging Face environment: shoal env-cache prepare huggingface")
    with torch_ranks.kept(lambda size: torch_ranks.Ranks(size, python=python)) as ranks:
        ranks(2).check("smp_gpt2", "replaced")


def test_a_rank_that_fails_or_is_gone_is_told(ranks):
    # The last of these tests, since it leaves no pair behind.
    pair = ranks(2)
    pair.check("smp_failures", "failures")
    for process in pair.processes:
        process.stdin.write(json.dumps(["smp_failures", "gone"]) + "\n")
        process.stdin.flush()
    # The other one says nothing more.
    answer = pair.answer(0)
    assert answer["ok"], answer
