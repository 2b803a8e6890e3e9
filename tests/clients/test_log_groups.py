"""CloudWatch Logs of users' own: groups, streams and events, with AWS's answers."""

import time

import pytest
from jobs import GROUP


@pytest.fixture
def logs(house):
    return house.client("logs")


def code(call, **arguments):
    with pytest.raises(call.__self__.exceptions.ClientError) as error:
        call(**arguments)
    return error.value.response["Error"]["Code"]


def test_a_group_of_ones_own(logs):
    now = int(time.time() * 1000)
    group, stream = {"logGroupName": "/my/app"}, {"logGroupName": "/my/app", "logStreamName": "one"}
    assert code(logs.create_log_stream, **stream) == "ResourceNotFoundException"
    logs.create_log_group(**group)
    assert code(logs.create_log_group, **group) == "ResourceAlreadyExistsException"
    assert (
        code(logs.put_log_events, **stream, logEvents=[{"timestamp": now, "message": "x"}])
        == "ResourceNotFoundException"
    )
    logs.create_log_stream(**stream)
    assert code(logs.create_log_stream, **stream) == "ResourceAlreadyExistsException"

    events = [{"timestamp": now - 1000 + n, "message": f"event {n}"} for n in range(3)]
    assert "rejectedLogEventsInfo" not in logs.put_log_events(**stream, logEvents=events)
    assert code(logs.put_log_events, **stream, logEvents=events[::-1]) == "InvalidParameterException"
    day = 24 * 3600 * 1000
    long = [{"timestamp": now - day - 1, "message": "a"}, {"timestamp": now, "message": "b"}]
    assert code(logs.put_log_events, **stream, logEvents=long) == "InvalidParameterException"
    answer = logs.put_log_events(**stream, logEvents=[{"timestamp": now - 15 * day, "message": "old"}])
    assert answer["rejectedLogEventsInfo"] == {"tooOldLogEventEndIndex": 1}
    answer = logs.put_log_events(**stream, logEvents=[{"timestamp": now + day, "message": "new"}])
    assert answer["rejectedLogEventsInfo"] == {"tooNewLogEventStartIndex": 0}

    found = logs.get_log_events(**stream, startFromHead=True)["events"]
    assert [(event["timestamp"], event["message"]) for event in found] == [
        (event["timestamp"], event["message"]) for event in events
    ]
    found = logs.filter_log_events(**group, filterPattern='"event 1"')["events"]
    assert [event["message"] for event in found] == ["event 1"]
    assert [it["logStreamName"] for it in logs.describe_log_streams(**group)["logStreams"]] == ["one"]
    assert "one" not in [it["logStreamName"] for it in logs.describe_log_streams(logGroupName=GROUP)["logStreams"]]

    assert code(logs.put_retention_policy, **group, retentionInDays=2) == "InvalidParameterException"
    logs.put_retention_policy(**group, retentionInDays=1)
    described = logs.describe_log_groups(logGroupNamePrefix="/my/")["logGroups"]
    assert [(it["logGroupName"], it["retentionInDays"], it["storedBytes"]) for it in described] == [
        ("/my/app", 1, 3 * (7 + 26))
    ]
    answer = logs.put_log_events(**stream, logEvents=[{"timestamp": now - 2 * day, "message": "expired"}])
    assert answer["rejectedLogEventsInfo"] == {"expiredLogEventEndIndex": 1}
    logs.delete_retention_policy(**group)
    assert "retentionInDays" not in logs.describe_log_groups(logGroupNamePrefix="/my/")["logGroups"][0]

    logs.delete_log_stream(**stream)
    assert code(logs.delete_log_stream, **stream) == "ResourceNotFoundException"
    assert code(logs.get_log_events, **stream) == "ResourceNotFoundException"
    logs.delete_log_group(**group)
    assert code(logs.delete_log_group, **group) == "ResourceNotFoundException"
    assert code(logs.create_log_group, **group, tags={"a": "b"}) == "InvalidParameterException"
