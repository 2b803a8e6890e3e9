"""Several instances: each is a host of its own, and together they are one training."""

import json

import pytest


def test_instances_see_each_other_and_only_each_other(jobs):
    script = """
    echo 7777 > /tmp/mine
    getent hosts algo-1 algo-2 algo-3 | wc -l
    grep -c . /proc/net/dev > /dev/null && ls /sys/class/net | sort | tr '\\n' ' '; echo
    getent hosts amazon.com || echo no way out
    """
    name = jobs.script(script, instances=3)
    jobs.completed(name)
    for host in ("algo-1", "algo-2", "algo-3"):
        assert jobs.lines(name, host) == ["3", "eth0 lo ", "no way out"]


def test_resource_config(jobs):
    name = jobs.script("cat /opt/ml/input/config/resourceconfig.json; echo", instances=2)
    jobs.completed(name)
    for host in ("algo-1", "algo-2"):
        resources = json.loads(jobs.lines(name, host)[0])
        assert resources["current_host"] == host and resources["hosts"] == ["algo-1", "algo-2"]


@pytest.mark.parametrize("distribution, expected", [("ShardedByS3Key", [2, 1]), ("FullyReplicated", [3, 3])])
def test_channels_are_divided_or_not(jobs, distribution, expected):
    for name in "abc":
        jobs.put(f"parts/{name}.txt", name)
    name = jobs.script("ls /opt/ml/input/data/train | wc -l", instances=2, channels=[jobs.channel("train", "parts/", distribution)])
    jobs.completed(name)
    assert [int(jobs.lines(name, host)[0]) for host in ("algo-1", "algo-2")] == expected


def test_model_directories_are_joined(jobs):
    name = jobs.script("echo $(hostname) > /opt/ml/model/$(hostname).txt", instances=3)
    jobs.completed(name)
    assert jobs.artifact(name) == {f"algo-{host}.txt": f"algo-{host}\n".encode() for host in (1, 2, 3)}
