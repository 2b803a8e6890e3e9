"""What a user of SDK v2 waits for: prints the seconds of one Estimator.fit()."""

import os
import sys
import time

os.environ["SAGEMAKER_SUPPRESS_V2_WARNING"] = "1"

import sagemaker
from sagemaker.estimator import Estimator
from sagemaker.inputs import TrainingInput

session = sagemaker.Session()
bucket = session.default_bucket()
train = session.upload_data(sys.argv[1], bucket=bucket, key_prefix="bench/train")
estimator = Estimator(
    image_uri=sys.argv[2],
    role="arn:aws:iam::123456789012:role/bench",
    instance_count=1,
    instance_type="ml.m5.large",
    output_path=f"s3://{bucket}/models",
    sagemaker_session=session,
)
estimator.set_hyperparameters(**dict(pair.split("=") for pair in sys.argv[3:]))
started = time.monotonic()
estimator.fit({"train": TrainingInput(train, content_type="text/csv")}, logs="All")
print("seconds", time.monotonic() - started)
