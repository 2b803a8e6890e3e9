"""Clients that look seldom look oftener under `shoal exec`, with the same patience; and keep their own pace when told to."""

import json
import sys

import pytest

PROGRAM = """
import boto3, json
waiter = boto3.client("sagemaker").get_waiter("training_job_completed_or_stopped")
print(json.dumps([waiter.config.delay, waiter.config.max_attempts]))
"""


@pytest.mark.parametrize("polling, expected", [("", [1, 120 * 180]), ("keep", [120, 180])])
def test_a_waiters_own_pace(house, polling, expected):
    variables = {**house.environment, "SHOAL_SDK_POLLING": polling}
    said = house.shoal("exec", "--", sys.executable, "-c", PROGRAM, env=variables)
    assert json.loads(said.stdout) == expected


def test_a_waiters_answer_is_held_until_the_job_ends(jobs):
    """A waiter that may look only twice, a second apart, and finds a job that takes longer than that."""
    name = jobs.command("sleep 1.5")
    jobs.sagemaker.get_waiter("training_job_completed_or_stopped").wait(
        TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 2}
    )
    assert jobs.describe(name)["TrainingJobStatus"] == "Completed"
