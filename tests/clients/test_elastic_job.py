"""Ranks of a running job are killed, hang and are added, on several instances: the others train on in place."""

import pathlib

import pytest
from test_distributions import PYTORCH
from test_script_mode import create

HERE = pathlib.Path(__file__).parent
FILES = {"train.py": (HERE / "elastic_job.py").read_text(), "elastic_ranks.py": (HERE.parents[1] / "py/tests/elastic_ranks.py").read_text()}


def test_ranks_of_a_job_are_killed_hang_and_come(house, jobs, package):
    if not house.has_environment("pytorch"):
        pytest.skip("needs the PyTorch environment: shoal env-cache prepare pytorch")
    name = create(jobs, FILES, image=PYTORCH, instances=3)
    jobs.completed(name)
    for host, lines in jobs.logs(name).items():
        assert any("each sample was read once per epoch" in line for line in lines), (host, lines)
    # Which rank re-formed the group, and how fast: docs/elastic.md.
    assert sum("-> 2 ranks in" in line for line in jobs.lines(name)) >= 1, jobs.lines(name)
