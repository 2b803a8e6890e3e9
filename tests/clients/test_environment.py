"""`shoal env` and `shoal exec`: what clients are given, and that it leads every request here."""

import os
import subprocess
import sys

import pytest


def test_exports_can_be_evaluated(house):
    script = 'eval "$("$SHOAL" env)"; echo "$AWS_ENDPOINT_URL $AWS_REGION $AWS_DEFAULT_REGION ${AWS_PROFILE-unset}"'
    environment = {
        **os.environ,
        "SHOAL": str(house.binary),
        "SHOAL_DATA_DIR": str(house.data),
        "AWS_PROFILE": "another",
    }
    words = subprocess.run(
        ["sh", "-c", script], check=True, text=True, capture_output=True, env=environment
    ).stdout.split()
    assert words == [house.variables_for_clients()["AWS_ENDPOINT_URL"], "us-east-1", "us-east-1", "unset"]


def test_a_shell_does_not_go_on_without_it(house, tmp_path):
    """With whatever account it had before."""
    environment = {**os.environ, "SHOAL": str(house.binary), "SHOAL_DATA_DIR": str(tmp_path / "nothing")}
    shell = subprocess.run(
        ["sh", "-ec", 'eval "$("$SHOAL" env)"; echo went on'], text=True, capture_output=True, env=environment
    )
    assert shell.returncode != 0 and shell.stdout == "" and "shoal serve" in shell.stderr


def test_a_child_gets_it_and_its_exit_code_comes_back(house):
    child = house.shoal("exec", "--", "sh", "-c", "echo $AWS_ENDPOINT_URL; exit 7", check=False)
    assert child.returncode == 7
    assert child.stdout.strip() == house.variables_for_clients()["AWS_ENDPOINT_URL"]


@pytest.mark.parametrize(
    "call, expected",
    [
        # The SageMaker SDKs name STS's public host like this, which beats AWS_ENDPOINT_URL.
        (
            "boto3.client('sts', endpoint_url='https://sts.us-east-1.amazonaws.com').get_caller_identity()['Account']",
            "123456789012",
        ),
        ("boto3.client('sts').get_caller_identity()['Arn'].split(':')[2]", "sts"),
        ("boto3.client('iam').get_role(RoleName='anything')['Role']['Arn']", "arn:aws:iam::123456789012:role/anything"),
        ("boto3.client('s3').list_buckets()['ResponseMetadata']['HTTPStatusCode']", "200"),
    ],
)
def test_requests_to_amazon_come_here(house, call, expected):
    child = house.shoal("exec", "--", sys.executable, "-c", f"import boto3; print({call})")
    assert child.stdout.strip() == expected
