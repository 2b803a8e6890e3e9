"""XGBoost goes on from its checkpoints, through the API and the SDK, and ends with the model of a training that was never stopped."""

import json
import pathlib
import sys

import data
import pytest
from house import BUCKET, eventually

PROGRAM = pathlib.Path(__file__).with_name("sdk_v2_spot.py")
SAMPLED = {"objective": "binary:logistic", "subsample": 0.7, "colsample_bytree": 0.7, "max_depth": 4, "eval_metric": "auc"}


def rounds(jobs, name):
    """Rounds whose checkpoints have receipts."""
    receipts = json.loads(jobs.house.shoal("jobs", "checkpoints", name, "--json").stdout)
    return sorted(int(receipt["Path"].removeprefix("xgboost-checkpoint.")) for receipt in receipts)


@pytest.mark.parametrize("instances", [1, 3])
def test_stopped_and_submitted_again(jobs, instances):
    for part in range(instances):
        jobs.put(f"resume-{instances}/train/{part}.csv", data.as_csv(data.rows(2000, part)))

    def start(prefix):
        changes = {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/resume-{instances}/{prefix}"}}
        return jobs.xgboost(
            f"resume-{instances}/train", instances=instances, sharded=instances > 1, changes=changes, num_round=150, **SAMPLED
        )

    whole = start("whole")
    jobs.completed(whole)
    first = start("stopped")
    eventually(lambda: len(rounds(jobs, first)) > 8)
    jobs.sagemaker.stop_training_job(TrainingJobName=first)
    assert jobs.wait(first)["TrainingJobStatus"] == "Stopped"
    reached = rounds(jobs, first)[-1]
    second = start("stopped")
    jobs.completed(second)
    (told,) = [line for line in jobs.lines(second) if "Resuming from iteration" in line]
    assert int(told.split()[-1]) > 8
    print(f"stopped with a checkpoint of round {reached}; {told}")
    assert jobs.artifact(second)["xgboost-model"] == jobs.artifact(whole)["xgboost-model"]
    assert len(jobs.lines(second)) < len(jobs.lines(whole))


def test_a_spot_job_of_the_sdk(house, jobs, tmp_path):
    (tmp_path / "train.csv").write_text(data.as_csv(data.rows(300, 1)))
    run = house.shoal("exec", "--", sys.executable, str(PROGRAM), "train.csv", cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stderr
    first, second, bucket = json.loads(run.stdout.splitlines()[-1])
    assert jobs.describe(first)["EnableManagedSpotTraining"]
    keys = [entry["Key"] for entry in jobs.s3.list_objects_v2(Bucket=bucket, Prefix="spot/")["Contents"]]
    assert "spot/xgboost-checkpoint.4" in keys and "spot/xgboost-checkpoint.9" in keys
    assert any("Resuming from iteration 5" in line for line in jobs.lines(second)), jobs.lines(second)
