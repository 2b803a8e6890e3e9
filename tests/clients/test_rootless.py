"""The essentials once more with a server of an ordinary user, and with one that may make no
namespaces.
"""

import json

import data
import pytest
import xgboost
from jobs import Jobs

KINDS = {"ordinary user": {"ordinary": True}, "plain processes": {"variables": {"SHOAL_ISOLATION": "processes"}}}


@pytest.fixture(scope="module", params=KINDS)
def jobs(request, make_house):
    return Jobs(make_house(**KINDS[request.param]))


def test_the_doctor_says_how_instances_are_kept_apart(jobs):
    checks = json.loads(jobs.house.shoal("doctor", "--json", check=False).stdout)
    isolation = next(check for check in checks if check["check"] == "isolation")
    expected = "plain processes" if "SHOAL_ISOLATION" in jobs.house.variables else "rootless"
    assert expected in isolation["found"], isolation


def test_a_job_runs(jobs):
    jobs.put("rootless/in/a.txt", "content")
    line = "cat $SM_CHANNEL_TRAIN/a.txt; echo; echo value: 3; echo m > $SM_MODEL_DIR/$SM_CURRENT_HOST"
    channels = [jobs.channel("train", "rootless/in/")]
    name = jobs.command(line, instances=2, metrics=[("value", r"value: (\S+)")], InputDataConfig=channels)
    jobs.completed(name)
    assert [jobs.lines(name, host) for host in ("algo-1", "algo-2")] == [["content", "value: 3"]] * 2
    assert jobs.metrics(name) == {"value": 3}
    assert jobs.artifact(name) == {"algo-1": b"m\n", "algo-2": b"m\n"}


def test_stored_objects_stay_as_they_are(jobs):
    jobs.put("rootless/keep/a.txt", "content")
    channels = [jobs.channel("train", "rootless/keep/")]
    jobs.wait(jobs.command("echo changed > $SM_CHANNEL_TRAIN/a.txt", InputDataConfig=channels))
    assert jobs.s3.get_object(Bucket="tests", Key="rootless/keep/a.txt")["Body"].read() == b"content"


def test_a_failure_is_told(jobs):
    assert "exit code: 3" in jobs.failed(jobs.command("exit 3"))
    assert "by hand" in jobs.failed(jobs.command("echo by hand > $SM_OUTPUT_DIR/failure; exit 1"))


def test_a_stop(jobs):
    name = jobs.command("trap 'exit 0' TERM; echo ready; while true; do sleep 0.1; done")
    jobs.saying(name, "ready")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"


def test_xgboost_on_three_instances(jobs, tmp_path):
    rows = data.rows(300, 1)
    for part in range(3):
        jobs.put(f"rootless/train/{part}.csv", data.as_csv(rows[part::3]))
    parameters = {"objective": "binary:logistic", "num_round": 5, "eval_metric": "auc"}
    one = jobs.xgboost("rootless/train/", **parameters)
    three = jobs.xgboost("rootless/train/", instances=3, sharded=True, **parameters)
    found = []
    for name in (one, three):
        jobs.completed(name)
        path = tmp_path / f"{name}.ubj"
        path.write_bytes(jobs.artifact(name)["xgboost-model"])
        found.append(xgboost.Booster(model_file=path).predict(xgboost.DMatrix([row[1:] for row in rows])))
    assert abs(found[0] - found[1]).max() <= 1e-6
    assert jobs.metrics(one) == pytest.approx(jobs.metrics(three), abs=1e-5)
