"""What a user of SDK v3 waits for: prints the seconds of one TrainingJob, from its creation to the end of its wait()."""

import sys
import time

from sagemaker.core.resources import TrainingJob
from sagemaker.core.shapes import AlgorithmSpecification, OutputDataConfig, ResourceConfig, StoppingCondition

started = time.monotonic()
job = TrainingJob.create(
    training_job_name="bench-v3",
    role_arn="arn:aws:iam::123456789012:role/bench",
    algorithm_specification=AlgorithmSpecification(
        training_image="shoal/host", training_input_mode="File", container_entrypoint=sys.argv[1:]
    ),
    output_data_config=OutputDataConfig(s3_output_path="s3://bench/out"),
    resource_config=ResourceConfig(instance_type="ml.m5.large", instance_count=1, volume_size_in_gb=1),
    stopping_condition=StoppingCondition(max_runtime_in_seconds=60),
)
job.wait(logs=True)
print("seconds", time.monotonic() - started)
