"""Tuning jobs of the tests: requests, waiting, trials."""

import hashlib
import itertools
import pathlib

import pytest
from house import BUCKET, eventually
from jobs import PYTHON, ROLE, XGBOOST

_numbers = itertools.count(1)
OVER = ("Completed", "Failed", "Stopped")

# A loss that falls to (x - 0.3)^2: the best trial is the one whose x is nearest to 0.3, at every
# epoch.
LOSSES = r"""
import json, pathlib, time
parameters = json.loads(pathlib.Path("/opt/ml/input/config/hyperparameters.json").read_text())
x, epochs, pause = float(parameters["x"]), int(parameters["epochs"]), float(parameters["pause"])
print(f"trial of x={x!r}", flush=True)
for epoch in range(1, epochs + 1):
    time.sleep(pause)
    print(f"epoch={epoch}; loss={(x - 0.3) ** 2 + 1 / epoch:.12f};", flush=True)
"""
CURVE = LOSSES + 'pathlib.Path("/opt/ml/model/x").write_text(str(x))'


class Tunings:
    """What tests do with tuning jobs, over the clients of one server's `Jobs`."""

    def __init__(self, jobs):
        self.jobs = jobs

    @property
    def sagemaker(self):
        return self.jobs.sagemaker

    def create(
        self,
        definition,
        strategy="Random",
        trials=4,
        parallel=2,
        objective=("Minimize", "loss"),
        ranges=None,
        tags=(),
        **config,
    ):
        name = f"tune-{next(_numbers)}"
        ranges = ranges or {
            "ContinuousParameterRanges": [{"Name": "x", "MinValue": "0", "MaxValue": "1", "ScalingType": "Linear"}]
        }
        self.sagemaker.create_hyper_parameter_tuning_job(
            HyperParameterTuningJobName=name,
            HyperParameterTuningJobConfig={
                "Strategy": strategy,
                "HyperParameterTuningJobObjective": {"Type": objective[0], "MetricName": objective[1]},
                "ResourceLimits": {"MaxNumberOfTrainingJobs": trials, "MaxParallelTrainingJobs": parallel},
                "ParameterRanges": ranges,
                "TrainingJobEarlyStoppingType": "Off",
                "RandomSeed": 7,
                **config,
            },
            TrainingJobDefinition=definition,
            Tags=[{"Key": key, "Value": value} for key, value in tags],
        )
        return name

    def definition(self, algorithm, channels, hyperparameters, instance_type="ml.t3.medium", **changes):
        return {
            "AlgorithmSpecification": algorithm,
            "RoleArn": ROLE,
            "StaticHyperParameters": {key: str(value) for key, value in hyperparameters.items()},
            "InputDataConfig": channels,
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
            "ResourceConfig": {"InstanceType": instance_type, "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
            **changes,
        }

    def curve(self, epochs=9, pause=0.02, program=CURVE, metrics=(("loss", r"loss=(\S+);"),), **changes):
        """A definition of trials that run a program in Python."""
        if not pathlib.Path(PYTHON).exists():
            pytest.skip(f"needs {PYTHON}: instances see the machine's own /usr")
        prefix = f"curve/{hashlib.sha256(program.encode()).hexdigest()[:16]}/"
        self.jobs.put(f"{prefix}run.py", program)
        algorithm = {
            "TrainingImage": "shoal/host",
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": name, "Regex": regex} for name, regex in metrics],
        }
        # A tuning job's definition has no ContainerEntrypoint: its programs are named as SDK
        # estimators name them.
        script = {"sagemaker_program": "run.py", "sagemaker_submit_directory": "/opt/ml/input/data/code"}
        hyperparameters = {**script, "epochs": epochs, "pause": pause}
        return self.definition(algorithm, [self.jobs.channel("code", prefix)], hyperparameters, **changes)

    def xgboost(self, train, validation, **hyperparameters):
        channels = [
            self.jobs.channel("train", train, content_type="text/csv"),
            self.jobs.channel("validation", validation, content_type="text/csv"),
        ]
        return self.definition(
            {"TrainingImage": XGBOOST, "TrainingInputMode": "File"},
            channels,
            hyperparameters,
            instance_type="ml.m5.large",
        )

    def describe(self, name):
        return self.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)

    def wait(self, name, seconds=400):
        """The description of a tuning job that is over."""
        return eventually(lambda: (it := self.describe(name))["HyperParameterTuningJobStatus"] in OVER and it, seconds)

    def completed(self, name, seconds=400):
        it = self.wait(name, seconds)
        assert it["HyperParameterTuningJobStatus"] == "Completed", (it.get("FailureReason"), self.trials(name))
        return it

    def trials(self, name, **options):
        pages = self.sagemaker.get_paginator("list_training_jobs_for_hyper_parameter_tuning_job")
        found = pages.paginate(HyperParameterTuningJobName=name, **options)
        return [trial for page in found for trial in page["TrainingJobSummaries"]]

    def stop(self, name):
        self.sagemaker.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
