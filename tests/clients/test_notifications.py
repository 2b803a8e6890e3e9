"""Metrics of users' own, alarms on them, and the notifications of alarms and jobs: to a real HTTP
endpoint, a real SMTP server and a command; also by a server that is killed in between.
"""

import datetime
import email
import json
import re
import signal
import time
import urllib.request

import pytest
from botocore.exceptions import ClientError
from house import eventually, free_port
from jobs import Jobs
from receivers import Endpoint, Mailbox

ACCOUNT = "123456789012"


@pytest.fixture(scope="module")
def endpoint():
    return Endpoint()


@pytest.fixture(scope="module")
def mailbox():
    return Mailbox()


@pytest.fixture(scope="module")
def server(make_house, mailbox, tmp_path_factory):
    folder = tmp_path_factory.mktemp("notifying")
    script, data = folder / "note.sh", folder / "data"
    script.write_text(f"#!/bin/sh\ncat >> {folder}/noted\necho >> {folder}/noted\n")
    data.mkdir()
    script.chmod(0o755)
    (data / "shoal.toml").write_text(
        "[notifications]\n"
        f'smtp = "{mailbox.url}"\nfrom = "shoal@example.org"\ncommands = ["note={script}"]\n'
        f'job_state_changes = "arn:aws:sns:us-east-1:{ACCOUNT}:jobs"\n'
    )
    return make_house(data=data, port=free_port())


@pytest.fixture(scope="module")
def sns(server):
    return server.client("sns")


@pytest.fixture(scope="module")
def cloudwatch(server):
    return server.client("cloudwatch")


def now():
    return datetime.datetime.now(datetime.UTC)


def refused(call, code, hint, **arguments):
    with pytest.raises(ClientError) as error:
        call(**arguments)
    found = error.value.response["Error"]
    assert found["Code"] == code and hint in found["Message"], found


def noted(server):
    path = server.data.parent / "noted"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_values_are_put_and_read_beside_others(cloudwatch):
    minute = now().replace(second=0, microsecond=0) - datetime.timedelta(minutes=10)
    dimensions = [{"Name": "Room", "Value": "1"}]
    data = [
        {"MetricName": "t", "Dimensions": dimensions, "Timestamp": minute, "Value": 4.0, "Unit": "Count"},
        {
            "MetricName": "t",
            "Dimensions": dimensions,
            "Timestamp": minute,
            "Values": [1, 2],
            "Counts": [3, 1],
            "Unit": "Count",
        },
        {
            "MetricName": "s",
            "Timestamp": minute,
            "StatisticValues": {"SampleCount": 4, "Sum": 10, "Minimum": 1, "Maximum": 4},
        },
    ]
    cloudwatch.put_metric_data(Namespace="Mine", MetricData=data)
    # More than 10,000 bytes, which botocore compresses; and more than a page of metrics.
    many = [{"MetricName": f"m{n:03}", "Value": n, "StorageResolution": 1} for n in range(600)]
    cloudwatch.put_metric_data(Namespace="Many", MetricData=many)
    period = {"StartTime": minute, "EndTime": minute + datetime.timedelta(minutes=1), "Period": 60}
    found = cloudwatch.get_metric_statistics(
        Namespace="Mine",
        MetricName="t",
        Dimensions=dimensions,
        Statistics=["SampleCount", "Sum", "Minimum", "Maximum"],
        **period,
    )["Datapoints"]
    assert [(it["SampleCount"], it["Sum"], it["Minimum"], it["Maximum"], it["Unit"]) for it in found] == [
        (5.0, 9.0, 1.0, 4.0, "Count")
    ]
    median = cloudwatch.get_metric_statistics(
        Namespace="Mine", MetricName="t", Dimensions=dimensions, ExtendedStatistics=["p50"], **period
    )["Datapoints"]
    assert median[0]["ExtendedStatistics"] == {"p50": 1.0}
    stat = {"Metric": {"Namespace": "Mine", "MetricName": "s"}, "Period": 60, "Stat": "Average"}
    results = cloudwatch.get_metric_data(
        MetricDataQueries=[{"Id": "a", "MetricStat": stat}], StartTime=period["StartTime"], EndTime=period["EndTime"]
    )["MetricDataResults"]
    assert results[0]["Values"] == [2.5]
    pages = [page["Metrics"] for page in cloudwatch.get_paginator("list_metrics").paginate(Namespace="Many")]
    assert [len(page) for page in pages] == [500, 100]
    assert cloudwatch.list_metrics(Dimensions=[{"Name": "Room"}])["Metrics"] == [
        {"Namespace": "Mine", "MetricName": "t", "Dimensions": dimensions}
    ]
    one = [{"MetricName": "m", "Value": 1.0}]
    put = cloudwatch.put_metric_data
    refused(put, "InvalidParameterValue", "AWS/", Namespace="AWS/EC2", MetricData=one)
    refused(put, "MissingParameter", "Value", Namespace="Mine", MetricData=[{"MetricName": "m"}])
    refused(put, "InvalidParameterCombination", "exclusive", Namespace="Mine", MetricData=[{**one[0], "Values": [1.0]}])
    old = {**one[0], "Timestamp": now() - datetime.timedelta(days=15)}
    refused(put, "InvalidParameterValue", "two weeks", Namespace="Mine", MetricData=[old])


def test_topics_and_subscriptions(sns):
    arn = sns.create_topic(Name="plain", Attributes={"DisplayName": "Plain"}, Tags=[{"Key": "a", "Value": "1"}])[
        "TopicArn"
    ]
    assert arn == f"arn:aws:sns:us-east-1:{ACCOUNT}:plain" and sns.create_topic(Name="plain")["TopicArn"] == arn
    sns.tag_resource(ResourceArn=arn, Tags=[{"Key": "b", "Value": "2"}])
    sns.untag_resource(ResourceArn=arn, TagKeys=["a"])
    assert sns.list_tags_for_resource(ResourceArn=arn)["Tags"] == [{"Key": "b", "Value": "2"}]
    sns.set_topic_attributes(TopicArn=arn, AttributeName="DisplayName", AttributeValue="Other")
    for n in range(120):
        sns.create_topic(Name=f"many-{n:03}")
    pages = [page["Topics"] for page in sns.get_paginator("list_topics").paginate()]
    assert len(pages) == 2 and {"TopicArn": arn} in [topic for page in pages for topic in page]
    pending = sns.subscribe(TopicArn=arn, Protocol="http", Endpoint="http://127.0.0.1:9/")["SubscriptionArn"]
    assert pending == "pending confirmation"
    command = sns.subscribe(TopicArn=arn, Protocol="command", Endpoint="note")["SubscriptionArn"]
    assert sns.subscribe(TopicArn=arn, Protocol="command", Endpoint="note")["SubscriptionArn"] == command
    attributes = sns.get_topic_attributes(TopicArn=arn)["Attributes"]
    assert attributes["DisplayName"] == "Other"
    assert (attributes["SubscriptionsConfirmed"], attributes["SubscriptionsPending"]) == ("1", "1")
    listed = sns.list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"]
    assert {it["SubscriptionArn"] for it in listed} == {"PendingConfirmation", command}
    assert [it for it in sns.list_subscriptions()["Subscriptions"] if it["TopicArn"] == arn] == listed
    assert sns.get_subscription_attributes(SubscriptionArn=command)["Attributes"]["Protocol"] == "command"
    sns.unsubscribe(SubscriptionArn=command)
    refused(sns.get_subscription_attributes, "NotFound", "does not exist", SubscriptionArn=command)
    refused(sns.subscribe, "InvalidParameter", "Shoal delivers by", TopicArn=arn, Protocol="sqs", Endpoint="x")
    refused(sns.subscribe, "InvalidParameter", "it has: note", TopicArn=arn, Protocol="command", Endpoint="other")
    refused(sns.confirm_subscription, "InvalidParameter", "Invalid token", TopicArn=arn, Token="x")
    refused(sns.publish, "NotFound", "does not exist", TopicArn=arn + "-not", Message="x")
    refused(sns.publish, "InvalidParameter", "this server", TopicArn="arn:aws:sns:eu-west-1:1:t", Message="x")
    refused(sns.create_topic, "InvalidParameter", "FIFO", Name="a.fifo")
    sns.delete_topic(TopicArn=arn)
    refused(sns.get_topic_attributes, "NotFound", "does not exist", TopicArn=arn)
    assert sns.list_subscriptions()["Subscriptions"] == []


def test_messages_reach_an_endpoint_a_mailbox_and_a_command(server, sns, endpoint, mailbox):
    arn = sns.create_topic(Name="ops")["TopicArn"]
    asked = sns.subscribe(TopicArn=arn, Protocol="http", Endpoint=endpoint.url, ReturnSubscriptionArn=True)
    sns.subscribe(TopicArn=arn, Protocol="email", Endpoint="ann@example.org")
    sns.subscribe(TopicArn=arn, Protocol="command", Endpoint="note")
    confirmation = eventually(lambda: endpoint.messages("SubscriptionConfirmation"))[0]
    assert confirmation["TopicArn"] == arn
    sns.publish(TopicArn=arn, Message="for the command alone")
    confirmed = sns.confirm_subscription(TopicArn=arn, Token=confirmation["Token"])
    assert confirmed["SubscriptionArn"] == asked["SubscriptionArn"]
    # A mail's reader clicks.
    mail = email.message_from_string(eventually(lambda: mailbox.mails)[0][2])
    link = re.search(r"http://\S+Action=ConfirmSubscription\S+", mail.get_payload(decode=True).decode()).group()
    with urllib.request.urlopen(link) as answer:
        assert b"<ConfirmSubscriptionResult>" in answer.read()
    message = json.dumps({"default": "all", "email": "dear Ann"})
    attribute = {"n": {"DataType": "Number", "StringValue": "1"}}
    sent = sns.publish(
        TopicArn=arn, Message=message, MessageStructure="json", Subject="Hello", MessageAttributes=attribute
    )["MessageId"]
    got = eventually(lambda: endpoint.messages())[0]
    assert (got["MessageId"], got["Subject"], got["Message"]) == (sent, "Hello", "all")
    assert got["MessageAttributes"] == {"n": {"Type": "Number", "Value": "1"}} and "Signature" not in got
    headers = endpoint.received[-1][1]
    assert headers["x-amz-sns-message-type"] == "Notification" and headers["x-amz-sns-topic-arn"] == arn
    mail = email.message_from_string(eventually(lambda: mailbox.mails[1:])[0][2])
    assert (mail["Subject"], mail["To"], mail["From"]) == ("Hello", "ann@example.org", "shoal@example.org")
    assert mail.get_payload(decode=True).decode().startswith("dear Ann")
    commanded = eventually(lambda: noted(server) if len(noted(server)) >= 2 else None)
    assert [it["Message"] for it in commanded] == ["for the command alone", "all"]
    with urllib.request.urlopen(got["UnsubscribeURL"]):
        pass
    assert len(sns.list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"]) == 2
    lines = json.loads(server.shoal("notifications", "--json").stdout)["Notifications"]
    of_message = {line["Protocol"]: line["Status"] for line in lines if line["MessageId"] == sent}
    assert of_message == {"http": "Delivered", "email": "Delivered", "command": "Delivered"}
    assert "Delivered" in server.shoal("notifications").stdout


def alarm(name, topic, **changes):
    return {
        "AlarmName": name,
        "Namespace": "Heat",
        "MetricName": name,
        "Statistic": "Average",
        "Period": 10,
        "EvaluationPeriods": 1,
        "Threshold": 50.0,
        "ComparisonOperator": "GreaterThanThreshold",
        "AlarmActions": [topic],
        "OKActions": [topic],
        **changes,
    }


def put(cloudwatch, name, value, ago):
    at = now() - datetime.timedelta(seconds=ago)
    datum = {"MetricName": name, "Value": value, "Timestamp": at, "StorageResolution": 1}
    cloudwatch.put_metric_data(Namespace="Heat", MetricData=[datum])


def state(cloudwatch, name):
    return cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"][0]["StateValue"]


def hooked(sns, endpoint, name):
    """A topic with the endpoint as its only subscriber."""
    topic = sns.create_topic(Name=name)["TopicArn"]
    endpoint.status = 200
    sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=endpoint.url)
    of_topic = lambda: [it for it in endpoint.messages("SubscriptionConfirmation") if it["TopicArn"] == topic]
    sns.confirm_subscription(TopicArn=topic, Token=eventually(of_topic)[0]["Token"])
    return topic


def changes(endpoint, name):
    """Changes that the endpoint was sent, by messages."""
    sent = {it["MessageId"]: json.loads(it["Message"]) for it in endpoint.messages() if name in it["Message"]}
    return [(it["OldStateValue"], it["NewStateValue"]) for it in sent.values() if it["AlarmName"] == name]


def test_an_alarm_goes_off_and_a_killed_server_tells_it_once(server, cloudwatch, sns, endpoint):
    topic = hooked(sns, endpoint, "heat")
    put(cloudwatch, "hot", 10.0, 15)
    cloudwatch.put_metric_alarm(**alarm("hot", topic, TreatMissingData="ignore"))
    eventually(lambda: state(cloudwatch, "hot") == "OK")
    eventually(lambda: changes(endpoint, "hot") == [("INSUFFICIENT_DATA", "OK")])
    # Now the endpoint refuses it, and the server is killed before that changes.
    endpoint.status = 503
    put(cloudwatch, "hot", 99.0, 12)
    eventually(lambda: state(cloudwatch, "hot") == "ALARM")
    eventually(lambda: endpoint.messages(status=503))
    server.stop(signal.SIGKILL)
    endpoint.status = 200
    server.start()
    eventually(lambda: ("OK", "ALARM") in changes(endpoint, "hot"))
    time.sleep(1)
    assert changes(endpoint, "hot").count(("OK", "ALARM")) == 1
    taken = [it for it in endpoint.messages() if '"NewStateValue":"ALARM"' in it["Message"]]
    assert len(taken) == 1 and taken[0]["Subject"] == 'ALARM: "hot" in us-east-1'
    items = cloudwatch.describe_alarm_history(AlarmName="hot", HistoryItemType="StateUpdate")["AlarmHistoryItems"]
    assert [it["HistorySummary"] for it in items][:2] == [
        "Alarm updated from OK to ALARM",
        "Alarm updated from INSUFFICIENT_DATA to OK",
    ]


def test_alarms_are_listed_changed_and_refused(cloudwatch, sns):
    topic = sns.create_topic(Name="quiet")["TopicArn"]
    for n in range(3):
        cloudwatch.put_metric_alarm(**alarm(f"list-{n}", topic, Period=60, ActionsEnabled=False))
    pages = cloudwatch.get_paginator("describe_alarms").paginate(
        AlarmNamePrefix="list-", StateValue="INSUFFICIENT_DATA", PaginationConfig={"PageSize": 2}
    )
    assert [[it["AlarmName"] for it in page["MetricAlarms"]] for page in pages] == [["list-0", "list-1"], ["list-2"]]
    described = cloudwatch.describe_alarms_for_metric(Namespace="Heat", MetricName="list-1", Period=60)["MetricAlarms"]
    assert described[0]["AlarmActions"] == [topic] and described[0]["ActionsEnabled"] is False
    assert described[0]["AlarmArn"] == f"arn:aws:cloudwatch:us-east-1:{ACCOUNT}:alarm:list-1"
    assert cloudwatch.describe_alarms_for_metric(Namespace="Heat", MetricName="list-1", Period=10)["MetricAlarms"] == []
    cloudwatch.enable_alarm_actions(AlarmNames=["list-1"])
    cloudwatch.set_alarm_state(AlarmName="list-1", StateValue="ALARM", StateReason="by hand", StateReasonData="{}")
    now = cloudwatch.describe_alarms(AlarmNames=["list-1"], ActionPrefix=topic[:20])["MetricAlarms"][0]
    assert (now["StateValue"], now["StateReason"], now["ActionsEnabled"]) == ("ALARM", "by hand", True)
    cloudwatch.disable_alarm_actions(AlarmNames=["list-1"])
    pages = cloudwatch.get_paginator("describe_alarm_history").paginate(
        AlarmName="list-1", ScanBy="TimestampAscending", PaginationConfig={"PageSize": 2}
    )
    items = [item for page in pages for item in page["AlarmHistoryItems"]]
    assert [it["HistoryItemType"] for it in items] == [
        "ConfigurationUpdate",
        "ConfigurationUpdate",
        "StateUpdate",
        "Action",
        "ConfigurationUpdate",
    ]
    put_alarm = cloudwatch.put_metric_alarm
    lambda_action = "arn:aws:lambda:us-east-1:1:function:f"
    refused(put_alarm, "ValidationError", "topics of this server", **alarm("x", topic, AlarmActions=[lambda_action]))
    refused(put_alarm, "ValidationError", "10, 20, 30", **alarm("x", topic, Period=15))
    math = [{"Id": "e", "Expression": "1"}]
    refused(
        put_alarm,
        "ValidationError",
        "metric math",
        AlarmName="x",
        EvaluationPeriods=1,
        ComparisonOperator="LessThanThreshold",
        Metrics=math,
    )
    refused(cloudwatch.set_alarm_state, "ResourceNotFound", "x", AlarmName="x", StateValue="OK", StateReason="r")
    refused(
        cloudwatch.set_alarm_state,
        "InvalidFormat",
        "JSON",
        AlarmName="list-0",
        StateValue="OK",
        StateReason="r",
        StateReasonData="{",
    )
    refused(cloudwatch.delete_alarms, "ResourceNotFound", "x", AlarmNames=["list-0", "x"])
    refused(cloudwatch.describe_alarms, "InvalidNextToken", "NextToken", NextToken="00")
    with pytest.raises(ClientError, match="PutCompositeAlarm"):
        cloudwatch.put_composite_alarm(AlarmName="c", AlarmRule="ALARM(x)")
    cloudwatch.delete_alarms(AlarmNames=["list-0", "list-1", "list-2"])
    assert cloudwatch.describe_alarms(AlarmNamePrefix="list-")["MetricAlarms"] == []


def test_job_states_are_events(server, sns):
    topic = sns.create_topic(Name="jobs")["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="command", Endpoint="note")
    jobs = Jobs(server)
    name = jobs.command("true")
    jobs.completed(name)

    def by_status():
        events = [json.loads(it["Message"]) for it in noted(server) if it["TopicArn"] == topic]
        mine = [it for it in events if it["detail"]["TrainingJobName"] == name]
        by_status = {it["detail"]["TrainingJobStatus"]: it for it in mine}
        assert len(by_status) == len(mine), "an event came twice"
        return by_status

    events = eventually(lambda: by_status() if "Completed" in by_status() else None)
    assert set(events) == {"InProgress", "Completed"}
    assert events["Completed"]["detail-type"] == "SageMaker Training Job State Change"
    assert events["Completed"]["detail"]["SecondaryStatus"] == "Completed"
    environment = server.variables_for_clients()
    assert environment["AWS_ENDPOINT_URL"]
    token = (server.data / "metrics-token").read_text()
    request = urllib.request.Request(
        environment["AWS_ENDPOINT_URL"] + "/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    page = urllib.request.urlopen(request).read().decode()
    assert re.search(r"^shoal_notifications_delivered_total [1-9]", page, re.MULTILINE), page
