"""XGBoost goes on from its checkpoints, through the API and the SDK, and ends with the model of
a training that was never stopped.
"""

import json
import pathlib
import re
import sys

import data
import pytest
import records
from botocore.exceptions import ClientError
from house import BUCKET, eventually

PROGRAM = pathlib.Path(__file__).with_name("sdk_v2_spot.py")
SAMPLED = {
    "objective": "binary:logistic",
    "subsample": 0.7,
    "colsample_bytree": 0.7,
    "max_depth": 4,
    "eval_metric": "auc",
}


def rounds(jobs, name):
    """Rounds whose checkpoints have receipts."""
    receipts = json.loads(jobs.house.shoal("jobs", "checkpoints", name, "--json").stdout)
    return sorted(int(receipt["Path"].removeprefix("xgboost-checkpoint.")) for receipt in receipts)


@pytest.mark.parametrize("instances", [1, 3])
def test_stopped_and_submitted_again(jobs, instances):
    for part in range(instances):
        jobs.put(f"resume-{instances}/train/{part}.csv", data.as_csv(data.rows(2000, part)))

    def start(prefix, num_round):
        changes = {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/resume-{instances}/{prefix}-{num_round}"}}
        return jobs.xgboost(
            f"resume-{instances}/train",
            instances=instances,
            sharded=instances > 1,
            changes=changes,
            num_round=num_round,
            **SAMPLED,
        )

    # On a busy machine the training may be over before we come to stop it: then a longer one.
    for num_round in (400, 1600, 6400):
        first = start("stopped", num_round)
        # Read beside the server: the training is quick.
        eventually(
            lambda: (
                len(records.receipts(jobs.house, first)) > 8
                or jobs.describe(first)["TrainingJobStatus"] != "InProgress"
            )
        )
        try:
            jobs.sagemaker.stop_training_job(TrainingJobName=first)
        except ClientError as error:
            assert "is in status Completed" in str(error), error
        if jobs.wait(first)["TrainingJobStatus"] == "Stopped":
            break
    else:
        pytest.fail("it is never stopped in time")
    reached = rounds(jobs, first)[-1]
    second = start("stopped", num_round)
    whole = start("whole", num_round)
    jobs.completed(second)
    jobs.completed(whole)
    (told,) = [line for line in jobs.lines(second) if "Resuming from iteration" in line]
    assert int(told.split()[-1]) > 8
    print(f"stopped with a checkpoint of round {reached}; {told}")
    assert jobs.artifact(second)["xgboost-model"] == jobs.artifact(whole)["xgboost-model"]
    assert len(jobs.lines(second)) < len(jobs.lines(whole))


def test_a_spot_job_of_the_sdk(house, jobs, tmp_path):
    rows = data.as_csv(data.rows(300, 1))
    jobs.put("spot/train/1.csv", rows)
    uri = f"s3://{BUCKET}/spot/checkpoints"
    first = jobs.xgboost(
        "spot/train",
        changes={"CheckpointConfig": {"S3Uri": uri}},
        num_round=5,
        objective="binary:logistic",
        subsample=0.5,
    )
    jobs.completed(first)
    assert rounds(jobs, first) == [0, 1, 2, 3, 4]
    (tmp_path / "train.csv").write_text(rows)
    run = house.shoal("exec", "--", sys.executable, str(PROGRAM), "train.csv", uri, "10", cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stderr
    second = json.loads(run.stdout.splitlines()[-1])
    assert jobs.describe(second)["EnableManagedSpotTraining"]
    assert re.search(
        r"Training seconds: \d+\nBillable seconds: \d+\nManaged Spot Training savings: \d+\.\d%", run.stdout
    ), run.stdout
    assert any("Resuming from iteration 5" in line for line in jobs.lines(second)), jobs.lines(second)
    assert rounds(jobs, second) == [5, 6, 7, 8, 9]
