"""CloudWatch's metrics of real jobs, in the protocol of today's boto3 and in that of older ones;
data frames of the SDK.
"""

import datetime
import gzip
import json
import pathlib
import sys

import boto3
import botocore
import pytest
from botocore.exceptions import ClientError

NAMESPACE = "/aws/sagemaker/TrainingJobs"
VALUES = [4.0, 1.0, 3.0, 2.0]


@pytest.fixture(scope="module")
def job(jobs):
    lines = "; ".join(f"echo loss={value} acc={value / 8}" for value in VALUES)
    name = jobs.command(lines, metrics=[("loss", r"loss=(\S+)"), ("acc", r"acc=(\S+)")])
    return jobs.completed(name)


def _query_client(house, folder):
    """boto3 with the service's model as botocore 1.40 had it: forms and XML."""
    model = pathlib.Path(botocore.__file__).parent / "data/cloudwatch/2010-08-01/service-2.json.gz"
    document = json.loads(gzip.decompress(model.read_bytes()))
    document["metadata"].update(protocol="query", protocols=["query"])
    document["metadata"].pop("awsQueryCompatible", None)
    place = folder / "cloudwatch/2010-08-01"
    place.mkdir(parents=True)
    (place / "service-2.json").write_text(json.dumps(document))
    variables = house.variables_for_clients()
    session = boto3.Session(
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        region_name=variables["AWS_REGION"],
    )
    session._session.get_component("data_loader").search_paths.insert(0, str(folder))
    client = session.client("cloudwatch", endpoint_url=variables["AWS_ENDPOINT_URL"])
    assert client.meta.service_model.protocol == "query"
    return client


@pytest.fixture(scope="module", params=["json", "query"])
def cloudwatch(request, house, tmp_path_factory):
    if request.param == "json":
        client = house.client("cloudwatch")
        assert client.meta.service_model.resolved_protocol == "json"
        return client
    return _query_client(house, tmp_path_factory.mktemp("models"))


def asked(job, **changes):
    minute = datetime.timedelta(minutes=1)
    return {
        "Namespace": NAMESPACE,
        "MetricName": "loss",
        "Dimensions": [{"Name": "TrainingJobName", "Value": job["TrainingJobName"]}],
        "StartTime": job["TrainingStartTime"] - minute,
        "EndTime": job["TrainingEndTime"] + minute,
        # One period for all, however slow the machine is.
        "Period": 3600,
        **changes,
    }


def test_statistics(cloudwatch, job):
    names = ["SampleCount", "Average", "Sum", "Minimum", "Maximum"]
    answer = cloudwatch.get_metric_statistics(**asked(job), Statistics=names)
    assert answer["Label"] == "loss"
    points = answer["Datapoints"]
    assert [point["Unit"] for point in points] == ["None"] * len(points)
    # An hour may end between two lines.
    assert sum(point["SampleCount"] for point in points) == 4 and sum(point["Sum"] for point in points) == 10
    assert min(point["Minimum"] for point in points) == 1 and max(point["Maximum"] for point in points) == 4
    assert all(point["Average"] == point["Sum"] / point["SampleCount"] for point in points)
    assert all(point["Timestamp"].second == 0 for point in points)
    percentiles = cloudwatch.get_metric_statistics(**asked(job), ExtendedStatistics=["p0", "p100"])["Datapoints"]
    assert [point["ExtendedStatistics"] for point in percentiles] == [
        {"p0": point["Minimum"], "p100": point["Maximum"]} for point in points
    ]


@pytest.mark.parametrize(
    "changes",
    [
        dict(MetricName="other"),
        dict(Namespace="AWS/EC2"),
        dict(Dimensions=[]),
        dict(Unit="Bytes"),
        dict(Dimensions=[{"Name": "Host", "Value": "algo-1"}]),
        dict(Dimensions=[{"Name": "TrainingJobName", "Value": "nobody"}]),
    ],
)
def test_what_is_not_there_has_no_points(cloudwatch, job, changes):
    assert cloudwatch.get_metric_statistics(**asked(job, **changes), Statistics=["Sum"])["Datapoints"] == []


@pytest.mark.parametrize(
    "changes, code",
    [
        (dict(Period=7), "InvalidParameterValue"),
        (dict(Period=90), "InvalidParameterValue"),
        (dict(Statistics=None), "InvalidParameterCombination"),
        (dict(ExtendedStatistics=["p50"]), "InvalidParameterCombination"),
        (dict(Statistics=["Median"]), "ValidationError"),
        (dict(Statistics=None, ExtendedStatistics=["p101"]), "InvalidParameterValue"),
        (dict(StartTime=datetime.datetime(2030, 1, 1), EndTime=datetime.datetime(2029, 1, 1)), "InvalidParameterValue"),
        (dict(StartTime=datetime.datetime(2029, 1, 1), EndTime=datetime.datetime(2029, 1, 1)), "InvalidParameterValue"),
        (dict(StartTime=datetime.datetime(2020, 1, 1), Period=60), "InvalidParameterCombination"),
    ],
)
def test_what_cannot_be_computed_is_refused(cloudwatch, job, changes, code):
    request = asked(job, **{"Statistics": ["Sum"], **changes})
    with pytest.raises(ClientError) as error:
        cloudwatch.get_metric_statistics(**{name: value for name, value in request.items() if value is not None})
    answer = error.value.response["Error"]
    assert (answer["Code"], error.value.response["ResponseMetadata"]["HTTPStatusCode"]) == (code, 400), answer


def query(job, id, metric="loss", stat="Sum", **more):
    metric = {
        "Namespace": NAMESPACE,
        "MetricName": metric,
        "Dimensions": [{"Name": "TrainingJobName", "Value": job["TrainingJobName"]}],
    }
    return {"Id": id, "MetricStat": {"Metric": metric, "Period": 1, "Stat": stat}, **more}


def test_data(cloudwatch, job):
    minute = datetime.timedelta(minutes=1)
    times = dict(StartTime=job["TrainingStartTime"] - minute, EndTime=job["TrainingEndTime"] + minute)
    queries = [
        query(job, "sum"),
        query(job, "count", "acc", "SampleCount", Label="how many"),
        query(job, "hidden", ReturnData=False),
    ]
    answer = cloudwatch.get_metric_data(MetricDataQueries=queries, **times)
    results = {result["Id"]: result for result in answer["MetricDataResults"]}
    assert set(results) == {"sum", "count"}
    assert (results["sum"]["Label"], results["count"]["Label"]) == ("loss", "how many")
    assert (sum(results["sum"]["Values"]), sum(results["count"]["Values"])) == (10, 4)
    assert all(result["StatusCode"] == "Complete" for result in results.values())
    newest_first = results["sum"]["Timestamps"]
    assert newest_first == sorted(newest_first, reverse=True)
    ascending = cloudwatch.get_metric_data(MetricDataQueries=queries[:1], ScanBy="TimestampAscending", **times)[
        "MetricDataResults"
    ][0]
    assert ascending["Timestamps"] == newest_first[::-1] and ascending["Values"] == results["sum"]["Values"][::-1]
    pages = list(
        cloudwatch.get_paginator("get_metric_data").paginate(
            MetricDataQueries=queries, **times, PaginationConfig={"PageSize": 1}
        )
    )
    for name, result in results.items():
        found = [
            value
            for page in pages
            for part in page["MetricDataResults"]
            if part["Id"] == name
            for value in part["Values"]
        ]
        assert found == result["Values"]


@pytest.mark.parametrize(
    "changes, told",
    [
        (dict(Expression="SUM(METRICS())", MetricStat=None), "no metric math"),
        (dict(MetricStat=None), "either a MetricStat or an Expression"),
        (dict(Id="Big"), "Id"),
        (dict(ReturnData=False), "ReturnData"),
    ],
)
def test_queries_that_are_not_served(cloudwatch, job, changes, told):
    changed = {name: value for name, value in {**query(job, "q"), **changes}.items() if value is not None}
    with pytest.raises(ClientError) as error:
        cloudwatch.get_metric_data(MetricDataQueries=[changed], StartTime=0, EndTime=100)
    answer = error.value.response["Error"]
    assert answer["Code"] == "ValidationError" and told in answer["Message"], answer


def test_metrics_are_listed(cloudwatch, job):
    name = {"Name": "TrainingJobName", "Value": job["TrainingJobName"]}
    listed = cloudwatch.list_metrics(Namespace=NAMESPACE, Dimensions=[name])["Metrics"]
    assert listed == [
        {"Namespace": NAMESPACE, "MetricName": metric, "Dimensions": [name]} for metric in ("acc", "loss")
    ]
    everything = [metric for page in cloudwatch.get_paginator("list_metrics").paginate() for metric in page["Metrics"]]
    assert all(metric in everything for metric in listed)
    assert cloudwatch.list_metrics(MetricName="loss", RecentlyActive="PT3H", Dimensions=[name])["Metrics"] == listed[1:]
    assert (
        cloudwatch.list_metrics(Dimensions=[{"Name": "TrainingJobName"}], MetricName="acc")["Metrics"][-1]["MetricName"]
        == "acc"
    )
    for nothing in (dict(Namespace="AWS/EC2"), dict(Dimensions=[{"Name": "Host"}]), dict(MetricName="nothing")):
        assert cloudwatch.list_metrics(**nothing)["Metrics"] == []
    with pytest.raises(ClientError) as error:
        cloudwatch.list_metrics(NextToken="made up")
    assert error.value.response["Error"]["Code"] == "ValidationError"


def test_the_sdks_data_frame(house, job):
    """SDK v2's TrainingJobAnalytics, in a process of its own as users run it."""
    program = """
import sys, json, sagemaker
from sagemaker.analytics import TrainingJobAnalytics
frame = TrainingJobAnalytics(sys.argv[1], period=1, sagemaker_session=sagemaker.Session()).dataframe()
print(json.dumps({name: frame[frame.metric_name == name].value.tolist() for name in ("loss", "acc")} | {"columns": list(frame.columns)}))
"""
    run = house.shoal("exec", "--", sys.executable, "-c", program, job["TrainingJobName"], check=False)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["columns"] == ["timestamp", "metric_name", "value"]
    assert found["loss"] and all(1 <= value <= 4 for value in found["loss"])
    assert found["acc"] == pytest.approx([value / 8 for value in found["loss"]])
