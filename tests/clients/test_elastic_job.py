"""Ranks of a running job are killed, hang and are added, on one instance and on several: the
others train on in place.
"""

import pathlib
import re

import pytest
from test_distributions import PYTORCH
from test_script_mode import create

HERE = pathlib.Path(__file__).parent
TESTS = HERE.parents[1] / "py/tests"
RANKS = {"elastic_ranks.py": (TESTS / "elastic_ranks.py").read_text()}
LINE = re.compile(r"shoal\.elastic: (\d+) -> (\d+) ranks in (\d+) ms")


@pytest.fixture
def run(house, jobs, package):
    """The lines of each instance of a job that runs this program."""
    if not house.has_environment("pytorch"):
        pytest.skip("needs the PyTorch environment: shoal env-cache prepare pytorch")

    def run(program, files, instances=1, **hyperparameters):
        files = {"train.py": (HERE / program).read_text(), **files}
        name = create(jobs, files, image=PYTORCH, instances=instances, hyperparameters=hyperparameters)
        jobs.completed(name)
        return jobs.logs(name)

    return run


def changes(lines, figures):
    """Each change of the number of ranks, by the lines of the rank that was the oldest then;
    what each took is printed.
    """
    found = [match.groups() for match in map(LINE.search, lines) if match]
    figures("elastic in a job: " + ", ".join(f"{before} -> {after} ranks in {ms} ms" for before, after, ms in found))
    return [(int(before), int(after)) for before, after, _ in found]


def test_ranks_on_several_instances_are_killed_hang_and_are_replaced(run, figures):
    logs = run("elastic_job.py", RANKS, instances=3)
    for host, lines in logs.items():
        assert any("each sample was read once per epoch" in line for line in lines), (host, lines)
    assert changes(logs["algo-1"], figures) == [(3, 2), (2, 3), (3, 2), (2, 3)], logs


def test_ranks_on_one_instance_are_replaced_and_leave_the_roster(run, figures):
    lines = run("elastic_instance.py", RANKS)["algo-1"]
    assert any("each sample was read once per epoch" in line for line in lines), lines
    assert changes(lines, figures) == [(3, 2), (2, 3), (3, 2), (2, 3), (3, 2)], lines
    (left,) = [line for line in lines if "that left the roster ended after" in line]
    figures(f"elastic in a job: {left}")


@pytest.mark.parametrize("blow", ["kill", "hang"])
def test_horovods_workers_are_replaced(run, blow):
    files = {"horovod_elastic_worker.py": (TESTS / "horovod_elastic_worker.py").read_text()}
    lines = run("elastic_horovod.py", files, blow=f'"{blow}"')["algo-1"]
    assert any("2 -> 1 -> 2 workers" in line for line in lines), lines
