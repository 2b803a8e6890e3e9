"""What instances use, as AWS's clients ask for it, on our own surfaces, and as the profiler's files
in S3.
"""

import collections
import datetime
import json
import re
import signal
import urllib.request

import pytest
from house import BUCKET, eventually, free_port
from jobs import Jobs

NAMESPACE = "/aws/sagemaker/TrainingJobs"
PROFILER = {"S3OutputPath": f"s3://{BUCKET}/profile", "ProfilingIntervalInMilliseconds": 200}

# The first host is busy, by two ranks, and the other one sleeps.
TWO_HOSTS = r"""
cat /opt/ml/input/config/profilerconfig.json; echo
if [ "$SM_CURRENT_HOST" = algo-1 ]; then
  for rank in 0 1; do RANK=$rank /bin/sh -c 'while :; do :; done' & done
fi
exec sleep 600
"""


def profiled(jobs, name):
    """The lines of a job's files, by file."""
    files = jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"profile/{name}/").get("Contents", [])
    read = lambda key: jobs.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode().splitlines()
    return {file["Key"]: [json.loads(line) for line in read(file["Key"])] for file in files}


def times(files, host, name="cpu0"):
    events = [event for lines in files.values() for event in lines if event["NodeId"] == host]
    return sorted(event["Timestamp"] for event in events if event["Name"] == name)


def checked(files, name):
    """Each file is where AWS's readers look for it, and has the events of its minute, each once."""
    for key, lines in files.items():
        place = rf"profile/{name}/profiler-output/system/incremental/(\d{{10}})/(\d+)\.(algo-\d)\.json"
        hour, minute, host = re.fullmatch(place, key).groups()
        at = datetime.datetime.fromtimestamp(int(minute), datetime.UTC)
        assert int(minute) % 60 == 0 and hour == at.strftime("%Y%m%d%H")
        assert all(event["NodeId"] == host for event in lines)
        assert all(int(minute) <= event["Timestamp"] < int(minute) + 60 for event in lines)
    every = [
        (event["NodeId"], event["Name"], event["Dimension"], event["Timestamp"])
        for it in files.values()
        for event in it
    ]
    assert collections.Counter(every).most_common(1)[0][1] == 1, "an event is there twice"
    return files


@pytest.fixture(scope="module")
def running(jobs):
    """A job of two hosts, with a profiler, whose program runs until a test stops it."""
    name = jobs.script(TWO_HOSTS, instances=2, name="profiled", ProfilerConfig=PROFILER)
    jobs.until(name, "Training")
    return name


def statistics(house, name, host, dimensions=(), namespace=NAMESPACE, **query):
    now = datetime.datetime.now(datetime.UTC)
    answer = house.client("cloudwatch").get_metric_statistics(
        Namespace=namespace,
        MetricName=name,
        Dimensions=[{"Name": "Host", "Value": host}, *dimensions],
        StartTime=now - datetime.timedelta(minutes=10),
        EndTime=now + datetime.timedelta(minutes=1),
        Period=3600,
        Statistics=["Average", "Maximum", "SampleCount"],
        **query,
    )
    return answer["Datapoints"][0] if answer["Datapoints"] else None


def test_cloudwatch_has_aws_s_metrics_by_host(house, running):
    busy, idle = f"{running}/algo-1", f"{running}/algo-2"
    found = eventually(
        lambda: (
            (it := statistics(house, "CPUUtilization", busy)) and it["SampleCount"] >= 10 and it["Maximum"] > 20 and it
        )
    )
    assert found["Unit"] == "Percent"
    # The other host's report may come a moment later.
    assert eventually(lambda: statistics(house, "CPUUtilization", idle))["Average"] < found["Average"] / 2
    assert 0 < statistics(house, "MemoryUtilization", busy)["Average"] < 100
    assert statistics(house, "CPUUtilization", busy, Unit="Bytes") is None
    rank = [{"Name": "Rank", "Value": "1"}]
    assert statistics(house, "CPUUtilization", busy, rank, "Shoal/TrainingJobs")["Maximum"] > 5
    cloudwatch = house.client("cloudwatch")
    listed = cloudwatch.list_metrics(Namespace=NAMESPACE, Dimensions=[{"Name": "Host", "Value": busy}])["Metrics"]
    assert {"CPUUtilization", "MemoryUtilization"} <= {metric["MetricName"] for metric in listed}
    query = {"Metric": {"Namespace": NAMESPACE, "MetricName": "CPUUtilization", "Dimensions": listed[0]["Dimensions"]}}
    now = datetime.datetime.now(datetime.UTC)
    data = cloudwatch.get_metric_data(
        MetricDataQueries=[{"Id": "cpu", "MetricStat": {**query, "Period": 1, "Stat": "Average"}}],
        StartTime=now - datetime.timedelta(minutes=5),
        EndTime=now,
    )
    assert len(data["MetricDataResults"][0]["Values"]) >= 2
    analytics = house.client("sagemaker").describe_training_job(TrainingJobName=running)
    assert "FinalMetricDataList" not in analytics, "they are no metrics of the program's"


def test_our_own_surfaces(house, running):
    table = eventually(
        lambda: (it := house.shoal("jobs", "show", running, "--utilisation").stdout).count("algo-2") and it
    )
    assert re.search(r"^algo-1 +CPUUtilization +\d", table, re.M) and re.search(r"^algo-1 +rank 0 +CPU", table, re.M)
    answer = json.loads(house.shoal("jobs", "show", running, "--utilisation", "--json").stdout)
    assert [host["Host"] for host in answer["Hosts"]] == ["algo-1", "algo-2"]
    assert re.search(rf"{running} .*cpu \d+ % of \d+ cores", house.shoal("top").stdout)
    address = house.variables_for_clients()["AWS_ENDPOINT_URL"]
    token = (house.data / "metrics-token").read_text().strip()
    request = urllib.request.Request(f"{address}/metrics", headers={"Authorization": f"Bearer {token}"})
    page = urllib.request.urlopen(request).read().decode()
    assert re.search(r'^shoal_instance_cpu_cores\{attempt="[^"]+",host="algo-1"\} [0-9.]+$', page, re.M)
    assert running not in page


def test_the_profiler_is_switched_while_the_job_runs(jobs, running):
    assert jobs.describe(running)["ProfilingStatus"] == "Enabled"
    eventually(lambda: '"ProfilingIntervalInMilliseconds":200' in str(jobs.logs(running)))
    jobs.sagemaker.update_training_job(TrainingJobName=running, ProfilerConfig={"DisableProfiler": True})
    assert jobs.describe(running)["ProfilingStatus"] == "Disabled"
    off = datetime.datetime.now(datetime.UTC).timestamp()
    samples = lambda: statistics(jobs.house, "CPUUtilization", f"{running}/algo-2")["SampleCount"]
    before = samples()
    eventually(lambda: samples() > before + 5)
    jobs.sagemaker.stop_training_job(TrainingJobName=running)
    jobs.wait(running)
    found = eventually(lambda: (it := profiled(jobs, running)) and len({key[-11:] for key in it}) >= 2 and it)
    checked(found, running)
    for host in ["algo-1", "algo-2"]:
        at = times(found, host)
        assert len(at) > 10 and at[-1] < off + 1, "nothing is profiled after the switch"
        gaps = sorted(later - earlier for earlier, later in zip(at, at[1:]))
        assert 0.15 < gaps[len(gaps) // 2] < 0.5, "the interval is honoured"


def test_a_killed_server_loses_no_file_and_writes_none_twice(new_house):
    house = new_house("--lease-s", "120", port=free_port())
    jobs = Jobs(house)
    profiler = {**PROFILER, "ProfilingIntervalInMilliseconds": 500}
    name = jobs.command("sleep 12", ProfilerConfig=profiler)
    jobs.until(name, "Training")
    cpu = lambda: statistics(house, "CPUUtilization", f"{name}/algo-1")
    eventually(cpu)
    house.stop(signal.SIGKILL)
    house.start()
    jobs.connect()
    jobs.completed(name)
    house.stop(signal.SIGKILL)
    house.start()
    jobs.connect()
    found = eventually(lambda: (it := profiled(jobs, name)) and len(times(it, "algo-1")) >= 15 and it)
    at = times(checked(found, name), "algo-1")
    assert max(later - earlier for earlier, later in zip(at, at[1:])) < 3, "no sample was lost"
