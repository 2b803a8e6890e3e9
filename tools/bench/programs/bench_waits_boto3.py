"""One client of `cargo xtask bench waits`: a waiter of boto3's. Prints when, by this machine's
clock, it returned.

bench_waits_boto3.py WAITER JOB SECONDS
"""

import sys
import time

import boto3

waiter, job, seconds = sys.argv[1:]
sagemaker = boto3.client("sagemaker")
sagemaker.create_training_job(
    TrainingJobName=job,
    RoleArn="arn:aws:iam::123456789012:role/bench",
    AlgorithmSpecification={
        "TrainingImage": "shoal/host",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["sleep", seconds],
    },
    OutputDataConfig={"S3OutputPath": "s3://bench/out"},
    ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
    StoppingCondition={"MaxRuntimeInSeconds": 3600},
)
sagemaker.get_waiter(waiter).wait(TrainingJobName=job)
print("returned", time.time())
