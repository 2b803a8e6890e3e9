"""What the client's side of the tests shares: clients of the server, keys, and how refusals are
looked at.
"""

import contextlib
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

ENDPOINT = sys.argv[2]
OWN = dict(aws_access_key_id="AKIAOWN", aws_secret_access_key="own/secret+1")
JOB = dict(aws_access_key_id="ASIAJOB", aws_secret_access_key="job-secret", aws_session_token="token/+=")


def connect(keys=OWN, region="us-east-1", **config):
    config = Config(retries={"max_attempts": 1}, **config)
    return boto3.client("s3", endpoint_url=ENDPOINT, region_name=region, config=config, **keys)


s3 = connect()


@contextlib.contextmanager
def refused(code, status=None):
    try:
        yield
    except ClientError as error:
        assert error.response["Error"]["Code"] == code, error.response
        assert status in (None, error.response["ResponseMetadata"]["HTTPStatusCode"]), error.response
    else:
        raise AssertionError(f"not refused with {code}")


def read(bucket, key, client=s3, **arguments):
    return client.get_object(Bucket=bucket, Key=key, **arguments)["Body"].read()


def exists(bucket, key):
    try:
        s3.head_object(Bucket=bucket, Key=key)
        return True
    except ClientError as error:
        assert error.response["Error"]["Code"] == "404", error.response
        return False
