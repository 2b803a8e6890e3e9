"""AWS Budgets with an unmodified boto3: errors of each operation, pages, what is refused and stopped when a
limit is reached, and `shoal budget`.
"""

import subprocess

import pytest
from botocore.exceptions import ClientError
from house import SHOAL, eventually
from jobs import Jobs
from receivers import Mailbox

ACCOUNT = "123456789012"
NOTIFICATION = {"NotificationType": "ACTUAL", "ComparisonOperator": "GREATER_THAN", "Threshold": 80.0}
MAIL = {"SubscriptionType": "EMAIL", "Address": "owner@example.com"}
TOPIC = {"SubscriptionType": "SNS", "Address": f"arn:aws:sns:us-east-1:{ACCOUNT}:budgets"}


def refused(call, **arguments):
    with pytest.raises(ClientError) as error:
        call(**arguments)
    return error.value.response["Error"]["Code"], error.value.response["Error"]["Message"]


def budget(name, team, amount="100", unit="USD", **changes):
    return {
        "BudgetName": name,
        "BudgetLimit": {"Amount": amount, "Unit": unit},
        "CostFilters": {"TagKeyValue": [f"user:team${team}"]},
        "TimeUnit": "MONTHLY",
        "BudgetType": "COST" if unit == "USD" else "USAGE",
        **changes,
    }


@pytest.fixture(scope="module")
def mailbox():
    return Mailbox()


@pytest.fixture(scope="module")
def jobs(make_house, mailbox, tmp_path_factory):
    data = tmp_path_factory.mktemp("budgets") / "data"
    data.mkdir()
    (data / "shoal.toml").write_text(f'[notifications]\nsmtp = "{mailbox.url}"\nfrom = "shoal@example.org"\n')
    return Jobs(make_house(data=data))


@pytest.fixture(scope="module")
def budgets(jobs):
    return jobs.house.client("budgets")


def test_budgets_are_created_changed_and_deleted(budgets):
    named = {"AccountId": ACCOUNT, "BudgetName": "first"}
    create = {
        "AccountId": ACCOUNT,
        "Budget": budget("first", "none"),
        "NotificationsWithSubscribers": [{"Notification": NOTIFICATION, "Subscribers": [MAIL]}],
    }
    budgets.create_budget(**create)
    assert refused(budgets.create_budget, **create)[0] == "DuplicateRecordException"
    shown = budgets.describe_budget(**named)["Budget"]
    assert shown["BudgetLimit"] == {"Amount": "100", "Unit": "USD"}
    assert shown["CalculatedSpend"]["ActualSpend"] == {"Amount": "0.000", "Unit": "USD"}
    assert (shown["TimePeriod"]["Start"].day, shown["TimePeriod"]["End"].year) == (1, 2087)
    budgets.update_budget(AccountId=ACCOUNT, NewBudget=budget("first", "none", "50"))
    changed = budgets.describe_budget(**named)["Budget"]
    assert changed["BudgetLimit"]["Amount"] == "50" and changed["TimePeriod"] == shown["TimePeriod"]
    history = budgets.describe_budget_performance_history(**named)["BudgetPerformanceHistory"]
    (month,) = history["BudgetedAndActualAmountsList"]
    assert month["ActualAmount"]["Amount"] == "0.000" and month["TimePeriod"]["Start"].day == 1
    for number in range(3):
        budgets.create_budget(AccountId=ACCOUNT, Budget=budget(f"page-{number}", "none"))
    pages = budgets.get_paginator("describe_budgets").paginate(AccountId=ACCOUNT, PaginationConfig={"PageSize": 3})
    names = [[one["BudgetName"] for one in page["Budgets"]] for page in pages]
    assert names == [["first", "page-0", "page-1"], ["page-2"]]
    arn = f"arn:aws:budgets::{ACCOUNT}:budget/first"
    budgets.tag_resource(ResourceARN=arn, ResourceTags=[{"Key": "shoal:at-limit", "Value": "refuse"}])
    assert budgets.list_tags_for_resource(ResourceARN=arn)["ResourceTags"] == [
        {"Key": "shoal:at-limit", "Value": "refuse"}
    ]
    budgets.untag_resource(ResourceARN=arn, ResourceTagKeys=["shoal:at-limit"])
    assert budgets.list_tags_for_resource(ResourceARN=arn)["ResourceTags"] == []
    code, message = refused(
        budgets.tag_resource, ResourceARN=arn, ResourceTags=[{"Key": "shoal:at-limit", "Value": "explode"}]
    )
    assert code == "InvalidParameterException" and "stop" in message
    for name in ["first", "page-0", "page-1", "page-2"]:
        budgets.delete_budget(AccountId=ACCOUNT, BudgetName=name)
    assert refused(budgets.describe_budget, **named)[0] == "NotFoundException"


def test_notifications_and_their_subscribers(budgets):
    named = {"AccountId": ACCOUNT, "BudgetName": "mails"}
    budgets.create_budget(AccountId=ACCOUNT, Budget=budget("mails", "none"))
    of = {**named, "Notification": NOTIFICATION}
    budgets.create_notification(**of, Subscribers=[MAIL])
    assert refused(budgets.create_notification, **of, Subscribers=[MAIL])[0] == "DuplicateRecordException"
    (listed,) = budgets.describe_notifications_for_budget(**named)["Notifications"]
    assert listed == {**NOTIFICATION, "ThresholdType": "PERCENTAGE", "NotificationState": "OK"}
    budgets.create_subscriber(**of, Subscriber=TOPIC)
    assert refused(budgets.create_subscriber, **of, Subscriber=TOPIC)[0] == "CreationLimitExceededException"
    other = {**MAIL, "Address": "other@example.com"}
    budgets.update_subscriber(**of, OldSubscriber=MAIL, NewSubscriber=other)
    budgets.delete_subscriber(**of, Subscriber=TOPIC)
    assert budgets.describe_subscribers_for_notification(**of)["Subscribers"] == [other]
    assert refused(budgets.delete_subscriber, **of, Subscriber=TOPIC)[0] == "NotFoundException"
    later = {**NOTIFICATION, "Threshold": 90.0}
    budgets.update_notification(**named, OldNotification=NOTIFICATION, NewNotification=later)
    assert refused(budgets.describe_subscribers_for_notification, **of)[0] == "NotFoundException"
    (account,) = budgets.describe_budget_notifications_for_account(AccountId=ACCOUNT)["BudgetNotificationsForAccount"]
    assert (account["BudgetName"], account["Notifications"][0]["Threshold"]) == ("mails", 90.0)
    budgets.delete_notification(**named, Notification=later)
    assert budgets.describe_notifications_for_budget(**named)["Notifications"] == []
    budgets.delete_budget(**named)


@pytest.mark.parametrize(
    "changes, hint",
    [
        ({"BudgetLimit": {"Amount": "0", "Unit": "USD"}}, "greater than 0"),
        ({"BudgetLimit": {"Amount": "1", "Unit": "EUR"}}, "USD"),
        ({"BudgetType": "RI_UTILIZATION"}, "only COST and USAGE"),
        ({"TimeUnit": "CUSTOM"}, "MONTHLY"),
        ({"CostFilters": {"Region": ["us-east-1"]}}, "TagKeyValue"),
        ({"CostFilters": {"TagKeyValue": ["team"]}}, "user:team$vision"),
        ({"AutoAdjustData": {"AutoAdjustType": "FORECAST"}}, "AutoAdjustData"),
        ({"TimePeriod": {"Start": 2000000000, "End": 1900000000}}, "earlier"),
    ],
)
def test_what_cannot_be_is_refused(budgets, changes, hint):
    code, message = refused(budgets.create_budget, AccountId=ACCOUNT, Budget=budget("bad", "none", **changes))
    assert code == "InvalidParameterException" and hint in message


def test_of_another_account(budgets):
    code, message = refused(budgets.describe_budgets, AccountId="000000000000")
    assert code == "AccessDeniedException" and ACCOUNT in message


def tuning_job(jobs, tags):
    request = jobs.request("tuned")
    definition = {
        "AlgorithmSpecification": {
            "TrainingImage": "shoal/host",
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        },
        "StaticHyperParameters": {
            "sagemaker_program": "train.py",
            "sagemaker_submit_directory": jobs.put("tuned/source.tar.gz", "it never runs"),
        },
        **{name: request[name] for name in ("RoleArn", "OutputDataConfig", "ResourceConfig", "StoppingCondition")},
    }
    return {
        "HyperParameterTuningJobName": "tuned",
        "HyperParameterTuningJobConfig": {
            "Strategy": "Random",
            "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": 1, "MaxParallelTrainingJobs": 1},
            "ParameterRanges": {"ContinuousParameterRanges": [{"Name": "rate", "MinValue": "0", "MaxValue": "1"}]},
        },
        "TrainingJobDefinition": definition,
        "Tags": tags,
    }


def test_a_spent_budget_stops_jobs_and_refuses_new_ones(jobs, budgets, mailbox):
    named = {"AccountId": ACCOUNT, "BudgetName": "vision"}
    tags = [{"Key": "team", "Value": "vision"}]
    budgets.create_budget(
        AccountId=ACCOUNT,
        Budget=budget("vision", "vision", "0.0003", "Hrs"),
        NotificationsWithSubscribers=[{"Notification": NOTIFICATION, "Subscribers": [MAIL]}],
        ResourceTags=[{"Key": "shoal:at-limit", "Value": "stop"}],
    )
    other = jobs.command("sleep 20", Tags=[{"Key": "team", "Value": "speech"}])
    job = jobs.command("sleep 100", Tags=tags)
    ended = jobs.wait(job, 60)
    assert ended["TrainingJobStatus"] == "Stopped"
    assert any(
        "a budget that it counts for is spent" in one["StatusMessage"] for one in ended["SecondaryStatusTransitions"]
    )
    with pytest.raises(ClientError) as error:
        jobs.command("true", Tags=tags)
    refusal = error.value.response["Error"]
    assert refusal["Code"] == "ResourceLimitExceeded"
    assert 'budget "vision" of 0.0003 Hrs per month is spent' in refusal["Message"]
    (listed,) = budgets.describe_notifications_for_budget(**named)["Notifications"]
    assert listed["NotificationState"] == "ALARM"
    mails = lambda: [it for it in mailbox.mails if "vision" in str(it)]
    assert len(eventually(mails, 20)) == 1
    with pytest.raises(ClientError) as error:
        jobs.sagemaker.create_hyper_parameter_tuning_job(**tuning_job(jobs, tags))
    assert error.value.response["Error"]["Code"] == "ResourceLimitExceeded", str(error.value)
    jobs.sagemaker.delete_training_job(TrainingJobName=job)
    with pytest.raises(ClientError, match="is spent"):
        jobs.command("true", Tags=tags)
    shown = budgets.describe_budget(**named)["Budget"]["CalculatedSpend"]
    assert float(shown["ActualSpend"]["Amount"]) > 0
    budgets.update_budget(AccountId=ACCOUNT, NewBudget=budget("vision", "vision", "10", "Hrs"))
    assert jobs.wait(jobs.command("true", Tags=tags))["TrainingJobStatus"] == "Completed"
    assert jobs.describe(other)["TrainingJobStatus"] != "Stopped"
    if jobs.describe(other)["TrainingJobStatus"] == "InProgress":
        jobs.sagemaker.stop_training_job(TrainingJobName=other)
    budgets.delete_budget(**named)


def test_the_command_line(jobs, budgets):
    def shoal(*words):
        command = [str(SHOAL), "budget", *words, "--data-dir", str(jobs.house.data)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert "shoal budget set" in shoal("list").stdout
    words = ["set", "cli", "--limit", "10", "--tag", "team=none", "--email", "owner@example.com"]
    assert shoal(*words).returncode == 0
    assert shoal(*words, "--at-limit", "refuse", "--notify-at", "50").returncode == 0
    listed = shoal("list").stdout.splitlines()[1].split()
    assert listed[:4] == ["cli", "monthly", "10.00", "USD"], listed
    assert listed[8:] == ["team=none", "refuse", "owner@example.com", "at", "50.0", "%"], listed
    (listed,) = budgets.describe_notifications_for_budget(AccountId=ACCOUNT, BudgetName="cli")["Notifications"]
    assert listed["Threshold"] == 50
    wrong = shoal("set", "wrong", "--limit", "-1")
    assert wrong.returncode != 0
    assert shoal("delete", "cli").returncode == 0
    eventually(lambda: not budgets.describe_budgets(AccountId=ACCOUNT)["Budgets"], 10)
