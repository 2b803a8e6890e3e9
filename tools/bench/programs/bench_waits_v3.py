"""One client of `cargo xtask bench waits`, and of `cargo xtask bench start`: SDK v3. Prints the
seconds from a job's creation to the return of the call that waits for it, and when, by this
machine's clock, that was.

    bench_waits_v3.py wait|wait-with-logs JOB SECONDS
"""

import sys
import time

from sagemaker.core.resources import TrainingJob
from sagemaker.core.shapes import AlgorithmSpecification, OutputDataConfig, ResourceConfig, StoppingCondition

way, job, seconds = sys.argv[1:]
started = time.monotonic()
created = TrainingJob.create(
    training_job_name=job,
    role_arn="arn:aws:iam::123456789012:role/bench",
    algorithm_specification=AlgorithmSpecification(
        training_image="shoal/host", training_input_mode="File", container_entrypoint=["sleep", seconds]
    ),
    output_data_config=OutputDataConfig(s3_output_path="s3://bench/out"),
    resource_config=ResourceConfig(instance_type="ml.m5.large", instance_count=1, volume_size_in_gb=1),
    stopping_condition=StoppingCondition(max_runtime_in_seconds=3600),
)
created.wait(logs=way == "wait-with-logs")
print("seconds", time.monotonic() - started)
print("returned", time.time())
