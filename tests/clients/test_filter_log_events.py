"""CloudWatch Logs across streams, as `aws logs tail` asks for them."""

import pytest
from botocore.exceptions import ClientError

GROUP = "/aws/sagemaker/TrainingJobs"
# Each host says when, in turns.
TALK = 'me=$(hostname); for i in 1 2 3 4; do echo "line $i of $me"; sleep 0.05; done; [ $me = algo-1 ] || echo "WARN: \\"odd\\" host"'


@pytest.fixture(scope="module")
def talk(jobs):
    """Two jobs, one of two hosts."""
    names = [jobs.command(TALK, instances=hosts) for hosts in (2, 1)]
    for name in names:
        assert jobs.wait(name)["TrainingJobStatus"] == "Completed"
    return names


@pytest.fixture(scope="module")
def logs(house):
    return house.client("logs")


def found(logs, size=10_000, **asked):
    pages = logs.get_paginator("filter_log_events").paginate(
        logGroupName=GROUP, PaginationConfig={"PageSize": size}, **asked
    )
    return [event for page in pages for event in page["events"]]


def test_hosts_are_told_as_one_by_time(logs, talk):
    events = found(logs, logStreamNamePrefix=f"{talk[0]}/")
    lines = [event["message"] for event in events if event["message"].startswith("line")]
    assert sorted(lines) == sorted(f"line {i} of algo-{host}" for i in (1, 2, 3, 4) for host in (1, 2))
    times = [event["timestamp"] for event in events]
    assert times == sorted(times)
    for size in (1, 3):
        assert found(logs, size, logStreamNamePrefix=f"{talk[0]}/") == events
    ids = [event["eventId"] for event in found(logs)]
    assert len(set(ids)) == len(ids)
    assert {event["logStreamName"].split("/")[0] for event in found(logs)} >= set(talk)


def test_streams_can_be_named(logs, talk):
    streams = [
        stream["logStreamName"]
        for stream in logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{talk[0]}/")["logStreams"]
    ]
    second = next(stream for stream in streams if "algo-2" in stream)
    assert {event["logStreamName"] for event in found(logs, logStreamNames=[second])} == {second}
    assert {event["logStreamName"] for event in found(logs, logStreamNames=streams + [second])} == set(streams)


@pytest.mark.parametrize(
    "pattern, expected",
    [
        ("line", 12),
        ("algo 3", 3),
        ("Line", 0),
        ('"line 3 of algo-1"', 2),
        ('?"line 1" ?"line 2"', 6),
        ('line -"algo-2"', 8),
        ('"\\"odd\\""', 1),
        ("WARN -odd", 0),
        ("", 13),
    ],
)
def test_patterns(logs, talk, pattern, expected):
    lines = [event for name in talk for event in found(logs, logStreamNamePrefix=f"{name}/", filterPattern=pattern)]
    assert len([event for event in lines if event["message"].startswith(("line", "WARN"))]) == expected


def test_times(logs, talk):
    events = found(logs, logStreamNamePrefix=f"{talk[0]}/")
    middle = events[len(events) // 2]["timestamp"]
    before = found(logs, logStreamNamePrefix=f"{talk[0]}/", endTime=middle)
    after = found(logs, logStreamNamePrefix=f"{talk[0]}/", startTime=middle)
    assert [event for event in events if event["timestamp"] <= middle] == before
    assert [event for event in events if event["timestamp"] >= middle] == after


@pytest.mark.parametrize(
    "asked, code",
    [
        (dict(filterPattern='{ $.level = "ERROR" }'), "InvalidParameterException"),
        (dict(filterPattern="[ip, user]"), "InvalidParameterException"),
        (dict(filterPattern="%ERR%"), "InvalidParameterException"),
        (dict(filterPattern="a-b"), "InvalidParameterException"),
        (dict(nextToken="made up"), "InvalidParameterException"),
        (dict(logStreamNames=["a"], logStreamNamePrefix="a"), "InvalidParameterException"),
        (dict(startTime=10, endTime=5), "InvalidParameterException"),
        (dict(logStreamNames=["not/there"]), "ResourceNotFoundException"),
        (dict(logGroupName="/not/there"), "ResourceNotFoundException"),
    ],
)
def test_what_cannot_be_found_is_told(logs, talk, asked, code):
    with pytest.raises(ClientError) as error:
        logs.filter_log_events(**{"logGroupName": GROUP, **asked})
    assert error.value.response["Error"]["Code"] == code


def test_tokens_belong_to_their_question(logs, talk):
    token = logs.filter_log_events(logGroupName=GROUP, limit=1)["nextToken"]
    with pytest.raises(ClientError) as error:
        logs.filter_log_events(logGroupName=GROUP, limit=1, nextToken=token, filterPattern="line")
    assert error.value.response["Error"]["Code"] == "InvalidParameterException"


def test_groups(logs, talk):
    groups = logs.describe_log_groups(logGroupNamePrefix="/aws/sagemaker/")["logGroups"]
    assert [group["logGroupName"] for group in groups] == [GROUP]
    assert groups[0]["arn"] == f"{groups[0]['logGroupArn']}:*"
    assert logs.describe_log_groups(logGroupNamePattern="TRAINING")["logGroups"] == groups
    assert logs.describe_log_groups(logGroupNamePrefix="/ecs")["logGroups"] == []
