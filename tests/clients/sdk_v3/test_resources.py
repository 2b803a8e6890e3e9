"""sagemaker.core's TrainingJob: one object for a training job, on Describe, List and Stop."""

import pytest
from jobs import ROLE
from sagemaker.core.resources import TrainingJob
from sagemaker.core.shapes import (
    AlgorithmSpecification,
    MetricDefinition,
    OutputDataConfig,
    ResourceConfig,
    StoppingCondition,
)
from sagemaker.core.utils.exceptions import FailedStatusError


@pytest.fixture
def create(jobs):
    def create(name, command, **changes):
        return TrainingJob.create(
            training_job_name=jobs.request(name)["TrainingJobName"],
            role_arn=ROLE,
            algorithm_specification=AlgorithmSpecification(
                training_image="shoal/host",
                training_input_mode="File",
                container_entrypoint=["sh", "-c", command],
                metric_definitions=[MetricDefinition(name="loss", regex=r"loss: (\S+)")],
            ),
            output_data_config=OutputDataConfig(s3_output_path="s3://tests/out"),
            resource_config=ResourceConfig(instance_type="ml.m5.large", instance_count=1, volume_size_in_gb=1),
            stopping_condition=StoppingCondition(max_runtime_in_seconds=60),
            **changes,
        )

    return create


def test_a_job_from_creation_to_its_end(create, caplog):
    caplog.set_level("INFO")
    job = create("v3-resource", "echo 'loss: 0.5'; echo 'with [brackets]'")
    job.wait(logs=True)
    assert job.training_job_status == "Completed" and job.final_metric_data_list[0].value == 0.5
    assert "with [brackets]" in caplog.text and "/algo-1-" in caplog.text
    again = TrainingJob.get(training_job_name=job.training_job_name)
    assert again.training_job_arn == job.training_job_arn and again.model_artifacts == job.model_artifacts
    found = list(TrainingJob.get_all(name_contains="v3-resource", sort_by="Name", status_equals="Completed"))
    assert [it.training_job_name for it in found] == [job.training_job_name]


def test_stop(create, jobs):
    job = create("v3-stop", "echo up; exec sleep 60")
    jobs.saying(job.training_job_name, "up")
    job.stop()
    job.wait()
    assert job.training_job_status == "Stopped" and job.secondary_status == "Stopped"


def test_a_failure_is_told_with_its_reason(create):
    job = create("v3-failure", "echo 'out of luck' > /opt/ml/output/failure; exit 3")
    with pytest.raises(FailedStatusError, match="out of luck"):
        job.wait()
