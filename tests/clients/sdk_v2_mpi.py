"""A user's program for SDK v2 that starts a program of MPI, unchanged from what runs against
AWS; run by `shoal exec` in test_mpi.py.

Its arguments: the image, the script's directory.
"""

import sys

import sagemaker
from sagemaker.pytorch import PyTorch

image, source = sys.argv[1:]
session = sagemaker.Session()
estimator = PyTorch(
    image_uri=image,
    entry_point="train.py",
    source_dir=source,
    role=sagemaker.get_execution_role(),
    instance_count=2,
    instance_type="ml.m5.large",
    distribution={"mpi": {"enabled": True, "processes_per_host": 2, "custom_mpi_options": "-x GIVEN='a b'"}},
    hyperparameters={"epochs": 1},
    metric_definitions=[{"Name": "sum", "Regex": r"sum = ([0-9.]+)"}],
    output_path=f"s3://{session.default_bucket()}/models",
    sagemaker_session=session,
)
estimator.fit(logs=False)
print(estimator.latest_training_job.name)
