"""AddTags, ListTags, DeleteTags: of jobs that run and of jobs that are over, over restarts."""

import signal

import pytest
from botocore.exceptions import ClientError
from jobs import Jobs


def tags(jobs, arn):
    return {tag["Key"]: tag["Value"] for tag in jobs.sagemaker.list_tags(ResourceArn=arn)["Tags"]}


def as_list(**pairs):
    return [{"Key": key, "Value": value} for key, value in pairs.items()]


def test_tags_of_a_job_that_runs_outlive_its_end(jobs):
    name = jobs.script("sleep 60", Tags=as_list(team="trees", cost="7"))
    arn = jobs.until(name, "Training")["TrainingJobArn"]
    assert tags(jobs, arn) == {"team": "trees", "cost": "7"}
    added = jobs.sagemaker.add_tags(ResourceArn=arn, Tags=as_list(cost="8", stage=""))
    assert added["Tags"] == as_list(team="trees", cost="8", stage="")
    jobs.sagemaker.delete_tags(ResourceArn=arn, TagKeys=["team", "never was"])
    assert tags(jobs, arn) == {"cost": "8", "stage": ""}
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert "Tags" not in jobs.wait(name)
    assert tags(jobs, arn) == {"cost": "8", "stage": ""}
    jobs.sagemaker.add_tags(ResourceArn=arn, Tags=as_list(after="the end"))
    jobs.sagemaker.delete_tags(ResourceArn=arn, TagKeys=["cost"])
    assert tags(jobs, arn) == {"stage": "", "after": "the end"}


def test_what_was_answered_outlives_a_kill(new_house):
    house = new_house()
    jobs = Jobs(house)
    running, over = jobs.script("sleep 60", Tags=as_list(a="1")), jobs.script("true")
    jobs.completed(over)
    jobs.until(running, "Training")
    arns = [jobs.describe(name)["TrainingJobArn"] for name in (running, over)]
    for arn in arns:
        jobs.sagemaker.add_tags(ResourceArn=arn, Tags=as_list(kept="yes"))
    jobs.sagemaker.delete_tags(ResourceArn=arns[0], TagKeys=["a"])
    house.stop(signal.SIGKILL)
    house.start()
    jobs.connect()
    assert [tags(jobs, arn) for arn in arns] == [{"kept": "yes"}] * 2
    jobs.sagemaker.stop_training_job(TrainingJobName=running)
    jobs.wait(running)
    assert tags(jobs, arns[0]) == {"kept": "yes"}


def test_arns_are_in_lower_case_and_names_are_not(jobs):
    name = jobs.script("true", name="Mixed-Case")
    arn = jobs.completed(name)["TrainingJobArn"]
    assert arn.endswith(f"training-job/{name.lower()}")
    jobs.sagemaker.add_tags(ResourceArn=arn, Tags=as_list(found="yes"))
    assert tags(jobs, arn.replace(name.lower(), name)) == {"found": "yes"}


@pytest.fixture(scope="module")
def arn(jobs):
    name = jobs.script("true")
    return jobs.completed(name)["TrainingJobArn"]


@pytest.mark.parametrize(
    "call, named",
    [
        (lambda it, arn: it.add_tags(ResourceArn=arn, Tags=as_list(**{"aws:mine": "x"})), "aws:"),
        (lambda it, arn: it.add_tags(ResourceArn=arn, Tags=as_list(a="1") + as_list(a="2")), "twice"),
        (lambda it, arn: it.add_tags(ResourceArn=arn, Tags=as_list(**{f"k{n}": "v" for n in range(51)})), "'tags'"),
        (lambda it, arn: it.add_tags(ResourceArn=arn, Tags=as_list(**{"k" * 129: "v"})), "tags.1.member.key"),
        (lambda it, arn: it.add_tags(ResourceArn=arn, Tags=as_list(k="v" * 257)), "tags.1.member.value"),
        (lambda it, arn: it.add_tags(ResourceArn=arn, Tags=as_list(**{"semi;colon": "v"})), "tags.1.member.key"),
        (lambda it, arn: it.delete_tags(ResourceArn=arn, TagKeys=["aws:mine"]), "aws:"),
        (lambda it, arn: it.list_tags(ResourceArn=arn, NextToken="made up"), "nextToken"),
        (lambda it, arn: it.list_tags(ResourceArn=arn + "-not"), "Requested resource not found."),
        (lambda it, arn: it.list_tags(ResourceArn=arn.replace("training-job", "endpoint")), "endpoint"),
        (lambda it, arn: it.list_tags(ResourceArn=arn.replace("us-east-1", "eu-west-1")), "eu-west-1"),
        (lambda it, arn: it.list_tags(ResourceArn=arn.replace("123456789012", "999999999999")), "999999999999"),
        (lambda it, arn: it.list_tags(ResourceArn="arn:aws:s3:::bucket"), "resourceArn"),
    ],
)
def test_refusals(jobs, arn, call, named):
    with pytest.raises(ClientError) as error:
        call(jobs.sagemaker, arn)
    answer = error.value.response["Error"]
    assert answer["Code"] == "ValidationException" and named in answer["Message"], answer
    assert tags(jobs, arn) == {}


def test_a_resource_has_fifty_tags_at_most(jobs):
    name = jobs.script("true", Tags=as_list(**{f"k{n}": "v" for n in range(49)}))
    arn = jobs.completed(name)["TrainingJobArn"]
    jobs.sagemaker.add_tags(ResourceArn=arn, Tags=as_list(last="v", k0="other"))
    with pytest.raises(ClientError) as error:
        jobs.sagemaker.add_tags(ResourceArn=arn, Tags=as_list(k1="other", more="v"))
    assert "51 tags" in error.value.response["Error"]["Message"]
    pages = list(jobs.sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn, PaginationConfig={"PageSize": 50}))
    assert [len(page["Tags"]) for page in pages] == [50]
    assert tags(jobs, arn)["k0"] == "other" and tags(jobs, arn)["k1"] == "v", "a refused change changes nothing"
