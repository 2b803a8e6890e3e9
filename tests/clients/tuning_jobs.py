"""Tuning jobs of the tests: requests, waiting, what became of their training jobs."""

import copy
import itertools
import pathlib

import pytest
from house import BUCKET, eventually
from jobs import PYTHON, ROLE, XGBOOST

_numbers = itertools.count(1)

# The least loss is at x = 0.3, and every epoch brings it nearer.
BOWL = """
import argparse, os, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("-x")
for name in ("epochs", "pause", "depth", "kind", "fails"):
    parser.add_argument("--" + name)
given = parser.parse_args()
for epoch in range(1, int(given.epochs or 3) + 1):
    print(f"epoch={epoch} loss={(float(given.x or 0) - 0.3) ** 2 + 1 / epoch:.9f};", flush=True)
    time.sleep(float(given.pause or 0))
if given.fails == "true" or given.fails == "True":
    sys.exit("it was to fail")
"""


class Tuning:
    """What tests do with tuning jobs, over the clients of one server."""

    def __init__(self, jobs):
        self.jobs = jobs
        self.client = jobs.sagemaker
        jobs.put("tuning/code/train.py", BOWL)

    def definition(self, **statics):
        """Training jobs of the program above."""
        if not pathlib.Path(PYTHON).exists():
            pytest.skip(f"needs {PYTHON}: instances see the machine's own /usr")
        return {
            "StaticHyperParameters": {
                "sagemaker_program": "train.py",
                "sagemaker_submit_directory": "/opt/ml/input/data/code",
                **{name: str(value) for name, value in statics.items()},
            },
            "AlgorithmSpecification": {
                "TrainingImage": "shoal/host",
                "TrainingInputMode": "File",
                "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+);"}],
            },
            "RoleArn": ROLE,
            "InputDataConfig": [self.jobs.channel("code", "tuning/code")],
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/tuned"},
            "ResourceConfig": {"InstanceType": "ml.t3.medium", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 300},
        }

    def xgboost(self, **statics):
        """The built-in algorithm over what lies below `tuning/train/` and `tuning/validation/`."""
        definition = self.definition()
        definition["StaticHyperParameters"] = {name: str(value) for name, value in statics.items()}
        definition["AlgorithmSpecification"] = {"TrainingImage": XGBOOST, "TrainingInputMode": "File"}
        definition["InputDataConfig"] = [
            self.jobs.channel(name, f"tuning/{name}/", content_type="text/csv") for name in ("train", "validation")
        ]
        return definition

    def request(
        self, definition, objective=("Minimize", "loss"), ranges=None, jobs=4, parallel=2, strategy="Random", **changes
    ):
        """A request with one definition; `changes` replace members of its configuration."""
        config = {
            "Strategy": strategy,
            "HyperParameterTuningJobObjective": {"Type": objective[0], "MetricName": objective[1]},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": jobs, "MaxParallelTrainingJobs": parallel},
            "ParameterRanges": ranges
            or {"ContinuousParameterRanges": [{"Name": "x", "MinValue": "0", "MaxValue": "1.0"}]},
            "RandomSeed": 7,
            **changes,
        }
        return {
            "HyperParameterTuningJobName": f"bowl-{next(_numbers)}",
            "HyperParameterTuningJobConfig": config,
            "TrainingJobDefinition": copy.deepcopy(definition),
        }

    def create(self, request):
        self.client.create_hyper_parameter_tuning_job(**request)
        return request["HyperParameterTuningJobName"]

    def describe(self, name):
        return self.client.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)

    def wait(self, name, seconds=400):
        """The description of a tuning job that is over."""
        over = ("Completed", "Failed", "Stopped")
        return eventually(lambda: (it := self.describe(name))["HyperParameterTuningJobStatus"] in over and it, seconds)

    def completed(self, name):
        """The description of a tuning job that must have done well."""
        description = self.wait(name)
        assert description["HyperParameterTuningJobStatus"] == "Completed", description.get("FailureReason")
        return description

    def trials(self, name, **options):
        """All its training jobs' summaries, page by page."""
        pages = []
        token = {}
        while True:
            answer = self.client.list_training_jobs_for_hyper_parameter_tuning_job(
                HyperParameterTuningJobName=name, **options, **token
            )
            pages += answer["TrainingJobSummaries"]
            if not answer.get("NextToken"):
                return pages
            token = {"NextToken": answer["NextToken"]}
