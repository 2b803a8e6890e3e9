"""A user's program for SDK v2: goes on with a training job that another program started. Run by
`shoal exec` in test_attach.py.

Its argument: the training job's name.
"""

import json
import sys

from sagemaker.estimator import Estimator

estimator = Estimator.attach(sys.argv[1])
print(
    json.dumps(
        {
            "job": estimator.latest_training_job.name,
            "image": estimator.image_uri,
            "role": estimator.role,
            "tags": estimator.tags,
            "hyperparameters": estimator.hyperparameters(),
            "instances": [estimator.instance_count, estimator.instance_type],
            "max_run": estimator.max_run,
            "model": estimator.model_data,
            "description": estimator.latest_training_job.describe()["TrainingJobStatus"],
        }
    )
)
