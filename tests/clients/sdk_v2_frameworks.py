"""A user's program for SDK v2 with the estimators of frameworks, unchanged from what runs
against AWS; run by `shoal exec` in test_frameworks.py.

Its arguments: the estimator, the version, the script's directory, the data's path.
"""

import json
import sys

import sagemaker
from sagemaker.sklearn import SKLearn
from sagemaker.xgboost import XGBoost

kind, version, source, path = sys.argv[1:]
session = sagemaker.Session()
bucket = session.default_bucket()
estimator = {"sklearn": SKLearn, "xgboost": XGBoost}[kind](
    entry_point="train.py",
    source_dir=source,
    framework_version=version,
    role=sagemaker.get_execution_role(),
    instance_count=1,
    instance_type="ml.m5.large",
    output_path=f"s3://{bucket}/models",
    hyperparameters={"rounds": 20, "flag": True},
    sagemaker_session=session,
)
estimator.fit({"train": session.upload_data(path, bucket=bucket, key_prefix=f"frameworks/{kind}")}, logs="All")
found, key = estimator.model_data.removeprefix("s3://").split("/", 1)
session.download_data(".", found, key_prefix=key)
print(json.dumps({"job": estimator.latest_training_job.name, "image": estimator.training_image_uri()}))
