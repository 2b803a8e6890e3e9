"""ListTrainingJobs: filters, orders, pages."""

import pytest


@pytest.fixture(scope="module")
def created(jobs):
    """Descriptions of five jobs in the order of creation, one of them failed."""
    names = [
        jobs.script("exit 1" if name == "list-c" else "true", name=name)
        for name in ["list-b", "list-a", "list-c", "list-e", "list-d"]
    ]
    return [jobs.wait(name) if "list-c" in name else jobs.completed(name) for name in names]


def names(answer):
    return [summary["TrainingJobName"] for summary in answer["TrainingJobSummaries"]]


def test_the_newest_come_first(jobs, created):
    found = names(jobs.sagemaker.list_training_jobs(NameContains="list-"))
    assert found == [job["TrainingJobName"] for job in reversed(created)]


@pytest.mark.parametrize(
    "options, key",
    [
        ({"SortBy": "Name", "SortOrder": "Ascending"}, lambda job: job["TrainingJobName"]),
        ({"SortBy": "CreationTime", "SortOrder": "Ascending"}, lambda job: job["CreationTime"]),
        ({"SortBy": "Status", "SortOrder": "Ascending"}, lambda job: job["TrainingJobStatus"]),
    ],
)
def test_orders(jobs, created, options, key):
    answer = jobs.sagemaker.list_training_jobs(NameContains="list-", **options)
    keys = {job["TrainingJobName"]: key(job) for job in created}
    found = [keys[name] for name in names(answer)]
    assert len(found) == 5 and found == sorted(found)


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("sort", ["Name", "CreationTime", "Status"])
def test_pages_hold_every_job_once(jobs, created, sort, size):
    paginator = jobs.sagemaker.get_paginator("list_training_jobs")
    pages = list(paginator.paginate(NameContains="list-", SortBy=sort, PaginationConfig={"PageSize": size}))
    found = [name for page in pages for name in names(page)]
    assert sorted(found) == sorted(job["TrainingJobName"] for job in created)
    assert all(len(page["TrainingJobSummaries"]) <= size for page in pages)


def test_filters(jobs, created):
    third = created[2]
    assert names(jobs.sagemaker.list_training_jobs(NameContains="list-", StatusEquals="Failed")) == [
        third["TrainingJobName"]
    ]
    before = jobs.sagemaker.list_training_jobs(NameContains="list-", CreationTimeBefore=third["CreationTime"])
    after = jobs.sagemaker.list_training_jobs(NameContains="list-", CreationTimeAfter=third["CreationTime"])
    inclusive = {third["TrainingJobName"]}
    assert set(names(before)) - inclusive == {job["TrainingJobName"] for job in created[:2]}
    assert set(names(after)) - inclusive == {job["TrainingJobName"] for job in created[3:]}
    assert names(jobs.sagemaker.list_training_jobs(NameContains="nothing")) == []


def test_a_summary(jobs, created):
    job = created[0]
    (summary,) = jobs.sagemaker.list_training_jobs(NameContains=job["TrainingJobName"])["TrainingJobSummaries"]
    for field in (
        "TrainingJobName",
        "TrainingJobArn",
        "CreationTime",
        "TrainingJobStatus",
        "TrainingEndTime",
        "LastModifiedTime",
        "SecondaryStatus",
    ):
        assert summary[field] == job[field], field


@pytest.mark.parametrize(
    "condition",
    [
        {"WarmPoolStatusEquals": "Available"},
        {"TrainingPlanArnEquals": "arn:aws:sagemaker:us-east-1:123456789012:training-plan/none"},
        {"LastModifiedTimeAfter": "2100-01-01T00:00:00Z"},
        {"LastModifiedTimeBefore": "2000-01-01T00:00:00Z"},
    ],
)
def test_filters_that_no_job_meets(jobs, created, condition):
    assert names(jobs.sagemaker.list_training_jobs(NameContains="list-", **condition)) == []


def test_changes_between_pages_neither_repeat_nor_lose(jobs, created):
    first = jobs.sagemaker.list_training_jobs(NameContains="list-", MaxResults=2, SortBy="Name", SortOrder="Ascending")
    # A job before the place, and the last one of the page, which the token names, come and go.
    jobs.completed(early := jobs.script("true", name="list-A"))
    rest = jobs.sagemaker.list_training_jobs(
        NameContains="list-", SortBy="Name", SortOrder="Ascending", NextToken=first["NextToken"]
    )
    jobs.sagemaker.delete_training_job(TrainingJobName=early)
    assert sorted(names(first) + names(rest)) == sorted(job["TrainingJobName"] for job in created)


def other_digit(token):
    return token[:-1] + ("1" if token[-1] == "0" else "0")


@pytest.mark.parametrize(
    "change",
    [
        lambda token: {"NextToken": "made up"},
        lambda token: {"NextToken": other_digit(token)},
        lambda token: {"NextToken": token[1:]},
        lambda token: {"NextToken": token, "SortBy": "Name"},
        lambda token: {"NextToken": token, "SortOrder": "Ascending"},
        lambda token: {"NextToken": token, "StatusEquals": "Failed"},
        lambda token: {"NextToken": token, "NameContains": "other"},
    ],
)
def test_a_token_is_for_its_own_list(jobs, created, change):
    token = jobs.sagemaker.list_training_jobs(NameContains="list-", MaxResults=1)["NextToken"]
    with pytest.raises(jobs.sagemaker.exceptions.ClientError) as error:
        jobs.sagemaker.list_training_jobs(**{"NameContains": "list-", **change(token)})
    answer = error.value.response["Error"]
    assert answer["Code"] == "ValidationException" and "nextToken" in answer["Message"], answer
    assert names(jobs.sagemaker.list_training_jobs(NameContains="list-", MaxResults=100, NextToken=token))
