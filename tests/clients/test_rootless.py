"""The essentials once more with a server of an ordinary user, and with one that may make no namespaces."""

import json

import data
import pytest
from jobs import Jobs

KINDS = {"ordinary user": {"ordinary": True}, "plain processes": {"variables": {"SHOAL_ISOLATION": "processes"}}}


@pytest.fixture(scope="module", params=KINDS)
def jobs(request, make_house):
    return Jobs(make_house(**KINDS[request.param]))


def plain(jobs):
    return "SHOAL_ISOLATION" in jobs.house.variables


def test_the_doctor_says_how_instances_are_kept_apart(jobs):
    checks = json.loads(jobs.house.shoal("doctor", "--json", check=False).stdout)
    isolation = next(check for check in checks if check["check"] == "isolation")
    assert ("plain processes" if plain(jobs) else "rootless") in isolation["found"]


def test_a_job_runs(jobs):
    jobs.put("rootless/in/a.txt", "content")
    name = jobs.script(
        "cat $SM_CHANNEL_TRAIN/a.txt; echo; echo value: 3; echo m > $SM_MODEL_DIR/m.txt",
        metrics=[("value", r"value: (\S+)")],
        channels=[jobs.channel("train", "rootless/in/")],
    ) if not plain(jobs) else None
    if name is None:
        pytest.skip("see test_plain_processes.py")
    jobs.completed(name)
    assert jobs.metrics(name) == {"value": 3}
    assert jobs.artifact(name) == {"m.txt": b"m\n"}
