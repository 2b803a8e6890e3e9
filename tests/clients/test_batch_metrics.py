"""Metrics that programs put themselves: SageMaker's BatchPutMetrics and BatchGetMetrics."""

import datetime
import http.client
import json
import urllib.parse

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

NAMESPACE = "/aws/sagemaker/TrainingJobs"
START = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.timezone.utc)


@pytest.fixture(scope="module")
def metrics(house):
    return house.client("sagemaker-metrics")


@pytest.fixture(scope="module")
def job(jobs):
    """Its trial component has its name in lower case."""
    return jobs.completed(jobs.command("true"))


@pytest.fixture(scope="module")
def component(metrics, job):
    name = f"{job['TrainingJobName'].lower()}-aws-training-job"
    data = [
        {
            "MetricName": "val:loss",
            "Timestamp": START + datetime.timedelta(seconds=20 * step),
            "Step": step // 2,
            "Value": 8.0 - step,
        }
        for step in range(6)
    ]
    assert "Errors" not in metrics.batch_put_metrics(TrialComponentName=name, MetricData=data)
    return name


def series(metrics, job, **changes):
    asked = {
        "MetricName": "val:loss",
        "ResourceArn": job["TrainingJobArn"],
        "MetricStat": "Avg",
        "Period": "IterationNumber",
        "XAxisType": "IterationNumber",
        **changes,
    }
    (result,) = metrics.batch_get_metrics(MetricQueries=[asked])["MetricQueryResults"]
    return result


def test_by_iteration(metrics, job, component):
    found = series(metrics, job)
    assert (found["Status"], found["XAxisValues"], found["MetricValues"]) == ("Complete", [0, 1, 2], [7.5, 5.5, 3.5])
    for statistic, expected in [
        ("Min", [7, 5, 3]),
        ("Max", [8, 6, 4]),
        ("Count", [2, 2, 2]),
        ("StdDev", [0.5] * 3),
        ("Last", [7, 5, 3]),
    ]:
        assert series(metrics, job, MetricStat=statistic)["MetricValues"] == expected, statistic
    assert series(metrics, job, Start=1, End=1)["XAxisValues"] == [1]


def test_by_time(metrics, job, component):
    by_minute = dict(Period="OneMinute", XAxisType="Timestamp")
    start = int(START.timestamp())
    found = series(metrics, job, **by_minute)
    assert (found["XAxisValues"], found["MetricValues"]) == ([start, start + 60], [7, 4])
    assert series(metrics, job, **by_minute, Start=start + 60)["MetricValues"] == [4]
    assert series(metrics, job, **{**by_minute, "Period": "OneHour"})["MetricValues"] == [5.5]


def test_cloudwatch_has_them_too(house, job, component):
    found = house.client("cloudwatch").get_metric_statistics(
        Namespace=NAMESPACE,
        MetricName="val:loss",
        Dimensions=[{"Name": "TrainingJobName", "Value": job["TrainingJobName"]}],
        StartTime=START,
        EndTime=START + datetime.timedelta(minutes=5),
        Period=60,
        Statistics=["Sum"],
    )
    assert [point["Sum"] for point in found["Datapoints"]] == [21, 12]


def test_the_jobs_own_name_does_too(metrics, job, component):
    value = {"MetricName": "other", "Timestamp": START, "Value": 1.0}
    metrics.batch_put_metrics(TrialComponentName=job["TrainingJobName"].lower(), MetricData=[value])
    assert series(metrics, job, MetricName="other", Period="OneMinute", XAxisType="Timestamp")["MetricValues"] == [1]


def test_what_is_wrong_is_told_of_each(house, metrics, job, component):
    good = {"MetricName": "partly", "Timestamp": START, "Value": 1.0, "Step": 1}
    # No clock is right in the year 10,000, and Python's dates end before.
    bad = {**good, "Timestamp": 300_000_000_000}
    wire = _unchecked(
        house, "PUT", "/BatchPutMetrics", {"TrialComponentName": component, "MetricData": [_plain(good), bad]}
    )
    assert wire == (200, {"Errors": [{"Code": "VALIDATION_ERROR", "MetricIndex": 1}]})
    assert series(metrics, job, MetricName="partly")["MetricValues"] == [1]


def test_what_is_not_there(house, metrics, job):
    with pytest.raises(ClientError) as error:
        metrics.batch_put_metrics(
            TrialComponentName="nobody-aws-training-job",
            MetricData=[{"MetricName": "m", "Timestamp": START, "Value": 1.0}],
        )
    assert error.value.response["Error"]["Code"] == "ResourceNotFound"
    found = series(metrics, job, ResourceArn=job["TrainingJobArn"].rsplit("/", 1)[0] + "/nobody")
    assert (found["Status"], found["MetricValues"]) == ("ValidationError", [])
    assert series(metrics, job, MetricName="nothing")["MetricValues"] == []
    assert (
        _unchecked(house, "PUT", "/BatchPutMetrics", {"TrialComponentName": "Upper", "MetricData": []})[1]["__type"]
        == "ValidationException"
    )
    assert _unchecked(house, "PUT", "/BatchPutMetrics", b"{")[1]["__type"] == "SerializationException"
    assert _unchecked(house, "POST", "/BatchPutMetrics", {})[1]["__type"] == "UnknownOperationException"


def test_a_program_puts_its_own(house, jobs, metrics):
    """With the keys that it finds in its instance, by a request of its own making: no SDK is
    there.
    """
    own = jobs.python(PROGRAM.replace("COMPONENT", "os.environ['TRAINING_JOB_NAME'].lower() + '-aws-training-job'"))
    description = jobs.completed(own)
    found = series(metrics, description, MetricName="inner", Period="OneMinute", XAxisType="Timestamp")
    assert found["MetricValues"] == [3.5]
    others = jobs.python(PROGRAM.replace("COMPONENT", f"'{own}-aws-training-job'"))
    jobs.completed(others)
    assert any("AccessDenied" in line for line in jobs.logs(others)["algo-1"])


PROGRAM = """
import datetime, hashlib, hmac, http.client, json, os, time, urllib.parse
host = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"]).netloc
body = json.dumps({"TrialComponentName": COMPONENT, "MetricData": [{"MetricName": "inner", "Timestamp": int(time.time()), "Value": 3.5}]}).encode()
now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
headers = {"host": host, "x-amz-date": now, "x-amz-security-token": os.environ["AWS_SESSION_TOKEN"]}
names = ";".join(sorted(headers))
lines = "".join(f"{name}:{headers[name]}\\n" for name in sorted(headers))
scope = f"{now[:8]}/{os.environ['AWS_REGION']}/sagemaker/aws4_request"
request = f"PUT\\n/BatchPutMetrics\\n\\n{lines}\\n{names}\\n{hashlib.sha256(body).hexdigest()}"
text = f"AWS4-HMAC-SHA256\\n{now}\\n{scope}\\n{hashlib.sha256(request.encode()).hexdigest()}"
key = ("AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"]).encode()
for part in scope.split("/"):
    key = hmac.digest(key, part.encode(), "sha256")
signature = hmac.digest(key, text.encode(), "sha256").hex()
credential = os.environ["AWS_ACCESS_KEY_ID"] + "/" + scope
headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
connection = http.client.HTTPConnection(host)
connection.request("PUT", "/BatchPutMetrics", body, headers)
answer = connection.getresponse()
print(answer.status, answer.read().decode())
"""


def _plain(metric):
    return {**metric, "Timestamp": metric["Timestamp"].timestamp()}


def _unchecked(house, method, path, body):
    """A request without a client's checks, signed by botocore."""
    variables = house.variables_for_clients()
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = AWSRequest(method, variables["AWS_ENDPOINT_URL"] + path, {"content-type": "application/json"}, data)
    keys = Credentials(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])
    SigV4Auth(keys, "sagemaker", variables["AWS_REGION"]).add_auth(request)
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(variables["AWS_ENDPOINT_URL"]).netloc)
    connection.request(method, path, data, dict(request.headers.items()))
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())
