"""Two nodes: agents that the launch command starts in two other network and mount namespaces, as on
two other machines.
"""

import os
import shutil
import subprocess

import pytest
from house import House, eventually
from jobs import Jobs
from test_hosts import TALK
from test_remote_agents import LAUNCH, ip

PREFIX = f"shn{os.getpid()}"
SERVER = "10.213.8.{}"
NODES = {"small": 0, "large": 1}

FILE = """
[agents]
listen = "0.0.0.0:0"
address = "ADDRESS"

[launch]
command = ["LAUNCH"]

[[node]]
name = "small"
cpus = 1
memory = "4GiB"
instances = 1

[[node]]
name = "large"
cpus = 2
memory = "8GiB"
instances = 2
"""


@pytest.fixture(scope="module")
def networks():
    if os.getuid() != 0 or not shutil.which("ip") or not shutil.which("nsenter"):
        pytest.skip("needs root, ip and nsenter")
    made = []
    try:
        for name, number in NODES.items():
            netns, ends = f"{PREFIX}{name}", [f"{PREFIX[-9:]}{end}{number}" for end in "sa"]
            try:
                ip("netns", "add", netns)
                made.append(netns)
                ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1], "netns", netns)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"needs network namespaces and veth: {error.stderr}")
            ip("address", "add", f"{SERVER.format(4 * number + 1)}/30", "dev", ends[0])
            ip("link", "set", ends[0], "up")
            ip("-n", netns, "address", "add", f"{SERVER.format(4 * number + 2)}/30", "dev", ends[1])
            ip("-n", netns, "link", "set", ends[1], "up")
            ip("-n", netns, "link", "set", "lo", "up")
            ip("-n", netns, "route", "add", "default", "via", SERVER.format(4 * number + 1))
        yield
    finally:
        for netns in made:
            ip("netns", "delete", netns)


@pytest.fixture(scope="module")
def jobs(networks, tmp_path_factory):
    root = tmp_path_factory.mktemp("server")
    data, caches, log = root / "data", tmp_path_factory.mktemp("caches"), root / "launched"
    data.mkdir()
    for name in NODES:
        (caches / name).mkdir()
    launch = root / "launch.sh"
    launch.write_text(
        f'#!/bin/sh\nexec {LAUNCH} {PREFIX}$SHOAL_NODE {caches}/$SHOAL_NODE {log}-$SHOAL_NODE {data} "$@"\n'
    )
    launch.chmod(0o755)
    file = FILE.replace("ADDRESS", SERVER.format(1)).replace("LAUNCH", str(launch))
    (data / "shoal.toml").write_text(file)
    house = House(data=data)
    house.launched = {name: root / f"launched-{name}" for name in NODES}
    yield Jobs(house)
    house.close()


def launched(jobs, node):
    path = jobs.house.launched[node]
    return len(path.read_text().splitlines()) if path.exists() else 0


def messages(jobs, name):
    return [entry["StatusMessage"] for entry in jobs.describe(name)["SecondaryStatusTransitions"]]


def test_a_job_is_on_a_node_that_has_room_for_it(jobs):
    before = {node: launched(jobs, node) for node in NODES}
    wide = jobs.command("echo ready; sleep 1000", instances=2)
    jobs.saying(wide, "ready")
    assert any("(on node large" in message for message in messages(jobs, wide)), messages(jobs, wide)
    assert launched(jobs, "large") == before["large"] + 2 and launched(jobs, "small") == before["small"]
    single = jobs.command("echo ready; sleep 1000")
    jobs.saying(single, "ready")
    assert any("on node small" in message for message in messages(jobs, single)), messages(jobs, single)
    assert launched(jobs, "small") == before["small"] + 1
    third = jobs.command("true", instances=2)
    waits = eventually(lambda: jobs.describe(third)["SecondaryStatus"] == "Pending" and messages(jobs, third)[-1])
    assert "free on node" in waits, waits
    jobs.sagemaker.stop_training_job(TrainingJobName=wide)
    jobs.completed(third)
    assert any("on node large" in message for message in messages(jobs, third)), messages(jobs, third)
    jobs.sagemaker.stop_training_job(TrainingJobName=single)
    jobs.wait(single)


def test_no_job_is_larger_than_a_node(jobs):
    with pytest.raises(jobs.sagemaker.exceptions.ResourceLimitExceeded) as refused:
        jobs.command("true", instances=3)
    assert "each node runs at most 2 instances at once" in str(refused.value)


def test_instances_on_a_node_reach_each_other(jobs):
    name = jobs.python(TALK, instances=2)
    jobs.completed(name)
    for host in ("algo-1", "algo-2"):
        assert jobs.lines(name, host) == ["['algo-1', 'algo-2']"]


def test_what_there_is_is_shown(jobs):
    config = jobs.house.shoal("config").stdout
    assert "small: up to 1 at once, 4.0 GiB of memory, 1 cores" in config
    log = jobs.house.log.read_text()
    assert "up to 3 at once, 12.0 GiB of memory, 3 cores" in log and "large: up to 2 at once" in log
