"""A user's program for SDK v2 that trains with PyTorch or TensorFlow, unchanged from what runs
against AWS; run by `shoal exec`.

Its arguments: the estimator, JSON of what each job's is made of, the script's directory, and the
channel `train` or nothing.
"""

import json
import sys

import sagemaker
from sagemaker.estimator import Estimator
from sagemaker.huggingface import HuggingFace
from sagemaker.pytorch import PyTorch
from sagemaker.tensorflow import TensorFlow

kind, each, source, *channel = sys.argv[1:]
session = sagemaker.Session()
names = []
for given in json.loads(each):
    estimator = {"Estimator": Estimator, "PyTorch": PyTorch, "HuggingFace": HuggingFace, "TensorFlow": TensorFlow}[
        kind
    ](
        **{"entry_point": "train.py", **given},
        source_dir=source,
        role=sagemaker.get_execution_role(),
        output_path="s3://tests/out",
        sagemaker_session=session,
    )
    estimator.fit({"train": channel[0]} if channel else None, wait=False)
    names.append(estimator.latest_training_job.name)
print(json.dumps(names))
