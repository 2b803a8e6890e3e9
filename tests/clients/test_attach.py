"""`Estimator.attach` of SDK v2: a training job becomes an estimator again, with its tags."""

import json
import pathlib
import sys

import data
from house import BUCKET
from jobs import ROLE, XGBOOST

PROGRAM = pathlib.Path(__file__).with_name("sdk_v2_attach.py")


def test_an_estimator_is_made_of_a_job(house, jobs):
    jobs.put("attach/train.csv", data.as_csv(data.rows(50, 1)))
    request = jobs.request(
        "Attach-To-Me",
        AlgorithmSpecification={"TrainingImage": XGBOOST, "TrainingInputMode": "File"},
        HyperParameters={"objective": "binary:logistic", "num_round": "2"},
        InputDataConfig=[jobs.channel("train", "attach/", content_type="text/csv")],
        Tags=[{"Key": "team", "Value": "trees"}],
    )
    name = request["TrainingJobName"]
    arn = jobs.sagemaker.create_training_job(**request)["TrainingJobArn"]
    jobs.completed(name)
    jobs.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "stage", "Value": "late"}])
    run = house.shoal("exec", "--", sys.executable, str(PROGRAM), name, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout.splitlines()[-1]) == {
        "job": name,
        "image": XGBOOST,
        "role": ROLE,
        "tags": [{"Key": "team", "Value": "trees"}, {"Key": "stage", "Value": "late"}],
        "hyperparameters": request["HyperParameters"],
        "instances": [1, "ml.m5.large"],
        "max_run": 600,
        "model": f"s3://{BUCKET}/out/{name}/output/model.tar.gz",
        "description": "Completed",
    }
