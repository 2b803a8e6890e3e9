"""The essentials once more with a server of an ordinary user."""

import json

import pytest
from jobs import Jobs


@pytest.fixture(scope="module")
def jobs(rootless_house):
    return Jobs(rootless_house)


def test_the_server_says_how_it_isolates(rootless_house):
    command = ["doctor", "--json"]
    if rootless_house.user:
        user = str(rootless_house.user)
        import subprocess

        prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", str(rootless_house.binary)]
        environment = {**rootless_house.variables, "SHOAL_DATA_DIR": str(rootless_house.data)}
        output = subprocess.run([*prefix, *command], text=True, capture_output=True, env=environment, cwd=rootless_house.root).stdout
    else:
        output = rootless_house.shoal(*command, check=False).stdout
    isolation = next(check for check in json.loads(output) if check["check"] == "isolation")
    assert "rootless" in isolation["found"] or "plain processes" in isolation["found"]


def test_a_job_runs(jobs):
    name = jobs.script("echo value: 3; echo m > /opt/ml/model/m.txt; id -u", metrics=[("value", r"value: (\S+)")])
    description = jobs.completed(name)
    assert description["FinalMetricDataList"][0]["Value"] == 3
    assert jobs.artifact(name) == {"m.txt": b"m\n"}


def test_instances_have_a_network(jobs):
    name = jobs.script("getent hosts algo-1 algo-2 | wc -l; hostname", instances=2)
    jobs.completed(name)
    assert [jobs.lines(name, host) for host in ("algo-1", "algo-2")] == [["2", "algo-1"], ["2", "algo-2"]]


def test_a_failure_is_told(jobs):
    assert "exit code: 3" in jobs.failed(jobs.script("exit 3"))


def test_a_stop(jobs):
    name = jobs.script("trap 'exit 0' TERM; echo ready; while true; do sleep 0.1; done")
    jobs.saying(name, "ready")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"


def test_xgboost_on_two_instances(jobs):
    for part in (0, 1):
        jobs.put(f"rootless/train/{part}.csv", "".join(f"{i % 2},{i % 7},{i % 5}\n" for i in range(100)))
    name = jobs.xgboost("rootless/train/", instances=2, sharded=True, objective="binary:logistic", num_round=3)
    jobs.completed(name)
    assert "xgboost-model" in jobs.artifact(name)
