"""Records signed requests as test data for SigV4: `python3 record.py > signed_requests.json`.

botocore builds and signs each request with fixed keys at a fixed time; a `before-send` hook keeps
what would go over the network and raises, so nothing is sent. botocore 1.40 or later; run it again
when clients change what they sign.
"""

import datetime
import json
import sys
from unittest import mock

import botocore
import botocore.auth
import botocore.awsrequest
import botocore.config
import botocore.credentials
import botocore.session

NOW = datetime.datetime(2026, 11, 21, 7, 24, 28, tzinfo=datetime.timezone.utc)
KEY, SECRET, TOKEN = (
    "AKIAIOSFODNN7EXAMPLE",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "FwoGZXIvYXdzEXAMPLE//token+with/odd==characters",
)
ENDPOINT = "http://127.0.0.1:9777"

# Added after signing, and different each time.
UNSIGNED = {"amz-sdk-invocation-id", "amz-sdk-request", "content-length"}
recorded = []


class Kept(Exception):
    """The request is recorded; go no further."""


def keep(name, request):
    body = request.body or b""
    recorded.append(
        {
            "name": name,
            "method": request.method,
            "url": request.url,
            "headers": {
                k: v.decode() if isinstance(v, bytes) else v
                for k, v in request.headers.items()
                if k.lower() not in UNSIGNED
            },
            "body": body.decode() if isinstance(body, bytes) else body,
        }
    )


def call(name, service, operation, params, token=None, region="us-east-1", headers=None):
    """One call through the whole of botocore."""
    session = botocore.session.Session()
    session.set_credentials(KEY, SECRET, token)
    config = botocore.config.Config(user_agent="recorder/1", retries={"total_max_attempts": 1})
    client = session.create_client(service, region_name=region, endpoint_url=ENDPOINT, config=config)
    if headers:

        def add(request, **_):
            for key, value in headers.items():
                request.headers[key] = value

        client.meta.events.register_first("before-sign.*.*", add)

    def stop(request, **_):
        keep(name, request)
        raise Kept

    client.meta.events.register_first("before-send.*.*", stop)
    try:
        getattr(client, operation)(**params)
    except Kept:
        pass


def bare(name, service, method, url, body=b"", headers=None):
    """A request of our own making through botocore's signer."""
    request = botocore.awsrequest.AWSRequest(method=method, url=url, data=body, headers=headers or {})
    credentials = botocore.credentials.Credentials(KEY, SECRET)
    botocore.auth.SigV4Auth(credentials, service, "eu-west-1").add_auth(request)
    keep(name, request.prepare())


TRAINING_JOB = {
    "TrainingJobName": "titanic-1",
    "RoleArn": "arn:aws:iam::123456789012:role/SageMakerRole",
    "AlgorithmSpecification": {
        "TrainingImage": "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1",
        "TrainingInputMode": "File",
    },
    "HyperParameters": {"num_round": "10", "objective": "binary:logistic"},
    "InputDataConfig": [
        {
            "ChannelName": "train",
            "ContentType": "text/csv",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://my-bucket/train"}},
        }
    ],
    "OutputDataConfig": {"S3OutputPath": "s3://my-bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 10},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}


mock.patch(
    "botocore.auth.get_current_datetime", lambda remove_tzinfo=True: NOW.replace(tzinfo=None) if remove_tzinfo else NOW
).start()

call("create training job", "sagemaker", "create_training_job", TRAINING_JOB)
unicode_job = dict(TRAINING_JOB, HyperParameters={"grüße": "naïve → 東京 🚆", "quote": '"a" & <b>'})
call("unicode body", "sagemaker", "create_training_job", unicode_job)
call("session token", "sagemaker", "create_training_job", TRAINING_JOB, token=TOKEN)
call(
    "describe in another region",
    "sagemaker",
    "describe_training_job",
    {"TrainingJobName": "titanic-1"},
    region="eu-central-1",
)
call(
    "list with times",
    "sagemaker",
    "list_training_jobs",
    {"MaxResults": 7, "CreationTimeAfter": NOW, "NameContains": "tit", "SortBy": "Name", "SortOrder": "Descending"},
)
call("stop", "sagemaker", "stop_training_job", {"TrainingJobName": "titanic-1"})
call("caller identity", "sts", "get_caller_identity", {})
call("role", "iam", "get_role", {"RoleName": "Sage+Maker@Role,x=1"})
call(
    "log streams",
    "logs",
    "describe_log_streams",
    {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamNamePrefix": "titanic-1/"},
)
call(
    "log events",
    "logs",
    "get_log_events",
    {
        "logGroupName": "/aws/sagemaker/TrainingJobs",
        "logStreamName": "titanic-1/algo-1-1",
        "startTime": 0,
        "startFromHead": True,
    },
)
odd = {"X-Amz-Odd": "  two   spaces  and\ttab ", "X-Custom": "a,b ;c", "Accept": "application/json"}
call("odd headers", "sagemaker", "describe_training_job", {"TrainingJobName": "titanic-1"}, headers=odd)
bare(
    "query with spaces",
    "sts",
    "GET",
    ENDPOINT + "/?Version=2011-06-15&Action=GetCallerIdentity&z=a%20b&a=%2F%2B~&empty=&flag&a=1",
)
bare(
    "raw unicode body", "sagemaker", "POST", ENDPOINT + "/", "naïve → 東京 🚆".encode(), {"X-Amz-Target": "SageMaker.X"}
)
bare(
    "path with spaces",
    "sagemaker",
    "POST",
    ENDPOINT + "/endpoints/a%20b%2Fc/invocations",
    b"1,2,3",
    {"Content-Type": "text/csv"},
)

json.dump(
    {
        "recorded_with": f"botocore {botocore.__version__}",
        "now_ms": int(NOW.timestamp() * 1000),
        "access_key_id": KEY,
        "secret_access_key": SECRET,
        "session_token": TOKEN,
        "requests": recorded,
    },
    sys.stdout,
    indent=1,
    ensure_ascii=False,
)
print()
