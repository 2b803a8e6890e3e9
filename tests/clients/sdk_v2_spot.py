"""A user's program for SDK v2: managed spot training with checkpoints, and more rounds from where they ended; run by `shoal exec`.

Its argument: the data's path."""

import json
import sys

import sagemaker
from sagemaker import image_uris
from sagemaker.estimator import Estimator
from sagemaker.inputs import TrainingInput

session = sagemaker.Session()
bucket = session.default_bucket()
train = session.upload_data(sys.argv[1], bucket=bucket, key_prefix="sdk-spot/train")


def fit(rounds):
    estimator = Estimator(
        image_uri=image_uris.retrieve("xgboost", session.boto_region_name, version="1.7-1"),
        role=sagemaker.get_execution_role(),
        instance_count=1,
        instance_type="ml.m5.large",
        output_path=f"s3://{bucket}/models",
        sagemaker_session=session,
        use_spot_instances=True,
        max_run=600,
        max_wait=1200,
        checkpoint_s3_uri=f"s3://{bucket}/spot",
        checkpoint_local_path="/opt/ml/checkpoints",
    )
    estimator.set_hyperparameters(objective="binary:logistic", num_round=rounds, subsample=0.5)
    estimator.fit({"train": TrainingInput(train, content_type="text/csv")}, logs="All")
    return estimator.latest_training_job.name


print(json.dumps([fit(5), fit(10), bucket]))
