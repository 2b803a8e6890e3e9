"""A user's program for SDK v2, unchanged from what runs against AWS; run by `shoal exec` in test_sdk_v2.py."""

import sys

import sagemaker
from sagemaker import image_uris
from sagemaker.estimator import Estimator
from sagemaker.inputs import TrainingInput

session = sagemaker.Session()
bucket = session.default_bucket()
train = session.upload_data(sys.argv[1], bucket=bucket, key_prefix="sdk/train")

estimator = Estimator(
    image_uri=image_uris.retrieve("xgboost", session.boto_region_name, version="1.7-1"),
    role="arn:aws:iam::123456789012:role/service-role/SageMakerRole",
    instance_count=1,
    instance_type="ml.m5.large",
    output_path=f"s3://{bucket}/models",
    sagemaker_session=session,
)
estimator.set_hyperparameters(objective="binary:logistic", num_round=5)
estimator.fit({"train": TrainingInput(train, content_type="text/csv")}, logs="All")

bucket, key = estimator.model_data.removeprefix("s3://").split("/", 1)
session.download_data(".", bucket, key_prefix=key)
print("model", estimator.model_data)
