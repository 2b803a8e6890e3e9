"""A user's program for SDK v2: managed spot training that goes on from checkpoints; run by
`shoal exec`.

Its arguments: the data's path, where checkpoints are, the number of rounds.
"""

import json
import sys

import sagemaker
from sagemaker import image_uris
from sagemaker.estimator import Estimator
from sagemaker.inputs import TrainingInput

path, checkpoints, rounds = sys.argv[1:]
session = sagemaker.Session()
bucket = session.default_bucket()
train = session.upload_data(path, bucket=bucket, key_prefix="sdk-spot/train")
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
    checkpoint_s3_uri=checkpoints,
    checkpoint_local_path="/opt/ml/checkpoints",
)
estimator.set_hyperparameters(objective="binary:logistic", num_round=int(rounds), subsample=0.5)
estimator.fit({"train": TrainingInput(train, content_type="text/csv")}, logs="All")
print(json.dumps(estimator.latest_training_job.name))
