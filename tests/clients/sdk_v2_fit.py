"""A user's program for SDK v2, unchanged from what runs against AWS; run by `shoal exec` in
test_sdk_v2.py.

Its arguments: the image's version, the number of instances, the data's path.
"""

import json
import sys
import time

import sagemaker
from sagemaker import image_uris
from sagemaker.estimator import Estimator
from sagemaker.inputs import TrainingInput

version, instances, path = sys.argv[1:]
session = sagemaker.Session()
bucket = session.default_bucket()
train = session.upload_data(path, bucket=bucket, key_prefix="sdk/train")

estimator = Estimator(
    image_uri=image_uris.retrieve("xgboost", session.boto_region_name, version=version),
    role=sagemaker.get_execution_role(),
    instance_count=int(instances),
    instance_type="ml.m5.large",
    output_path=f"s3://{bucket}/models",
    sagemaker_session=session,
)
estimator.set_hyperparameters(objective="binary:logistic", num_round=5)
start = time.monotonic()
estimator.fit({"train": TrainingInput(train, content_type="text/csv", distribution="ShardedByS3Key")}, logs="All")
seconds = time.monotonic() - start

bucket, key = estimator.model_data.removeprefix("s3://").split("/", 1)
session.download_data(".", bucket, key_prefix=key)
print(
    json.dumps(
        {"seconds": seconds, "job": estimator.latest_training_job.name, "role": estimator.role, "bucket": bucket}
    )
)
