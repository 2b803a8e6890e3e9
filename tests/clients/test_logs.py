"""CloudWatch Logs: a stream per host, in pages, to the last line."""

import time

import pytest
import records
from jobs import GROUP, Jobs

LINES = 2500


@pytest.fixture(scope="module")
def name(jobs):
    name = jobs.script(f"i=1; while [ $i -le {LINES} ]; do echo line $i; i=$((i+1)); done", instances=2)
    jobs.completed(name)
    return name


def streams(jobs, name):
    answer = jobs.logs_client.describe_log_streams(
        logGroupName=GROUP, logStreamNamePrefix=f"{name}/", orderBy="LogStreamName", limit=2
    )
    assert "nextToken" not in answer
    return [stream["logStreamName"] for stream in answer["logStreams"]]


def page(jobs, stream, **options):
    return jobs.logs_client.get_log_events(logGroupName=GROUP, logStreamName=stream, **options)


def numbered(events):
    return [event["message"] for event in events if event["message"].startswith("line ")]


def test_a_job_that_logs_too_much(new_house):
    """Lines and points beyond the quota are dropped, the log says where, and the program runs
    on.
    """
    jobs = Jobs(new_house("--log-quota", "20KiB"))
    line = 'i=1; while [ $i -le 2000 ]; do echo "line $i loss=$i;"; i=$((i+1)); done; echo done > $SM_MODEL_DIR/m'
    name = jobs.command(line, metrics=[("loss", r"loss=(\d+);")])
    jobs.completed(name)
    lines = jobs.logs(name)["algo-1"]
    notices = [text for text in lines if "setting log_quota" in text]
    assert sorted("log lines" in text for text in notices) == [False, True], lines[-5:]
    written = jobs.lines(name)
    assert written == [f"line {i} loss={i};" for i in range(1, len(written) + 1)] and 300 < len(written) < 600
    # A series takes some room, too.
    points = records.points(jobs.house, name, "loss")
    assert points == [float(i) for i in range(1, len(points) + 1)] and 400 < len(points) <= 20480 // 48
    assert jobs.artifact(name) == {"m": b"done\n"}
    metrics = jobs.house.client("sagemaker-metrics")
    put = {"MetricName": "more", "Timestamp": time.time(), "Value": 1.0}
    answer = metrics.batch_put_metrics(TrialComponentName=f"{name}-aws-training-job", MetricData=[put])
    assert [(it["Code"], it["MetricIndex"]) for it in answer["Errors"]] == [("METRIC_LIMIT_EXCEEDED", 0)]


def test_a_stream_per_host(jobs, name):
    assert [stream.rsplit("-", 1)[0] for stream in streams(jobs, name)] == [f"{name}/algo-1", f"{name}/algo-2"]


@pytest.mark.parametrize("limit", [400, 10_000])
def test_forward_every_line_once(jobs, name, limit):
    for stream in streams(jobs, name):
        events, token = [], None
        while True:
            options = {"nextToken": token} if token else {}
            answer = page(jobs, stream, startFromHead=True, limit=limit, **options)
            assert len(answer["events"]) <= limit
            events += answer["events"]
            if answer["nextForwardToken"] == token:
                break
            token = answer["nextForwardToken"]
        assert answer["events"] == []
        assert numbered(events) == [f"line {i}" for i in range(1, LINES + 1)]
        times = [event["timestamp"] for event in events]
        assert times == sorted(times)


def test_backward_from_the_end(jobs, name):
    (stream, _) = streams(jobs, name)
    last = page(jobs, stream, limit=10)
    before = page(jobs, stream, limit=10, nextToken=last["nextBackwardToken"])
    both = numbered(before["events"] + last["events"])
    first = int(both[0].split()[1])
    assert both == [f"line {i}" for i in range(first, LINES + 1)] and len(both) >= 15


def test_a_span_of_time(jobs, name):
    (stream, _) = streams(jobs, name)
    events = page(jobs, stream, startFromHead=True)["events"]
    middle = events[len(events) // 2]["timestamp"]
    earlier = page(jobs, stream, startFromHead=True, endTime=middle)["events"]
    later = page(jobs, stream, startFromHead=True, startTime=middle)["events"]
    assert all(event["timestamp"] < middle for event in earlier)
    assert later and all(event["timestamp"] >= middle for event in later)


@pytest.mark.parametrize(
    "call",
    [
        lambda logs, name: logs.describe_log_streams(logGroupName="/no/such/group"),
        lambda logs, name: logs.get_log_events(logGroupName=GROUP, logStreamName=f"{name}/algo-9-0"),
    ],
)
def test_what_is_not_there(jobs, name, call):
    with pytest.raises(jobs.logs_client.exceptions.ResourceNotFoundException):
        call(jobs.logs_client, name)


def test_lines_that_are_hard_to_tell(jobs):
    """A tab, an empty line, bytes that are no UTF-8, no newline at the end, a very long line."""
    name = jobs.script(
        r"printf 'tab\there\n\nbad \377 byte\n'; head -c 300000 /dev/zero | tr '\0' x; echo; printf 'no newline'"
    )
    jobs.completed(name)
    lines = jobs.lines(name)
    assert lines[0] == "tab#011here"
    assert any(line.startswith("bad ") and line.endswith(" byte") for line in lines)
    assert sum(line.count("x") for line in lines) >= 300_000
    assert lines[-1] == "no newline"


def test_output_may_end_in_one_great_gulp(jobs):
    name = jobs.script("seq 1 20000")
    jobs.completed(name)
    assert jobs.lines(name) == [str(i) for i in range(1, 20001)]
