"""Warm pools: instances that a training job keeps for the next one that matches, and what is
told of them.
"""

import itertools

import pytest
from botocore.exceptions import ClientError
from house import eventually
from jobs import Jobs

_roles = itertools.count(1)


@pytest.fixture
def role():
    """Only jobs of one role match, so that a test finds no other's instances."""
    return f"arn:aws:iam::123456789012:role/pool-{next(_roles)}"


@pytest.fixture(scope="module")
def jobs(make_house):
    return Jobs(make_house("--grace-s", "1", "--silence-s", "5"))


def keeping(seconds, volume=1):
    return {"VolumeSizeInGB": volume, "KeepAlivePeriodInSeconds": seconds}


def done(jobs, role, line="true", seconds=600, **changes):
    """A job of one line, over, and its instances kept or not."""
    name = jobs.command(line, RoleArn=role, **{"ResourceConfig": keeping(seconds), **changes})
    assert jobs.wait(name)["TrainingJobStatus"] == "Completed"
    eventually(lambda: pool(jobs, name).get("Status") != "InUse")
    return name


def pool(jobs, name):
    return jobs.describe(name).get("WarmPoolStatus", {})


def listed(jobs, status, names):
    """Those of the named jobs that List gives for this status, page by page, and what it says of
    each.
    """
    pages = jobs.sagemaker.get_paginator("list_training_jobs").paginate(
        WarmPoolStatusEquals=status, PaginationConfig={"PageSize": 1}
    )
    found = {it["TrainingJobName"]: it["WarmPoolStatus"] for page in pages for it in page["TrainingJobSummaries"]}
    assert {it["Status"] for it in found.values()} <= {status}
    return {name: it for name, it in found.items() if name in names}


def update(jobs, name, seconds):
    jobs.sagemaker.update_training_job(TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": seconds})


def test_the_next_matching_job_has_the_instances(jobs, role):
    # Other channels and another program: it is the instances that match. Where the machine is too
    # busy for a kept agent to answer, a job gets new ones.
    for _ in range(6):
        first = done(jobs, role)
        assert (
            pool(jobs, first)["Status"] == "Available"
            and pool(jobs, first)["ResourceRetainedBillableTimeInSeconds"] >= 0
        )
        jobs.put("pool/code/data", "data")
        other = {"InputDataConfig": [jobs.channel("other", "pool/code")], "Environment": {"A": "b"}}
        second = jobs.command("echo up; sleep 1000", RoleArn=role, ResourceConfig=keeping(600), **other)
        jobs.saying(second, "up")
        assert pool(jobs, second) == {"Status": "InUse"}
        if pool(jobs, first)["Status"] == "Reused":
            break
        jobs.sagemaker.stop_training_job(TrainingJobName=second)
        jobs.wait(second)
    of_first = pool(jobs, first)
    assert (of_first["Status"], of_first["ReusedByJob"]) == ("Reused", second)
    names = {first, second}
    assert listed(jobs, "Reused", names) == {first: of_first}
    assert listed(jobs, "InUse", names) == {second: {"Status": "InUse"}}
    assert listed(jobs, "Available", names) == {}
    kept = of_first["ResourceRetainedBillableTimeInSeconds"]
    assert f"warm     Reused, kept for {kept} s, by {second}" in jobs.house.shoal("jobs", "show", first).stdout
    # It is not to be kept again.
    update(jobs, second, 0)
    jobs.sagemaker.stop_training_job(TrainingJobName=second)
    jobs.wait(second)
    assert eventually(lambda: (it := pool(jobs, second))["Status"] != "InUse" and it)["Status"] == "Terminated"
    records = jobs.sagemaker.search(
        Resource="TrainingJob",
        SearchExpression={"Filters": [{"Name": "TrainingJobName", "Operator": "Equals", "Value": first}]},
    )["Results"]
    assert records[0]["TrainingJob"]["WarmPoolStatus"] == of_first


def test_other_jobs_do_not_match(jobs, role):
    first = done(jobs, role)
    others = [
        done(jobs, role, instance_type="ml.m5.large"),
        done(jobs, role, ResourceConfig=keeping(600, volume=2)),
        done(jobs, role, EnableNetworkIsolation=True),
        done(jobs, role + "-other"),
        done(jobs, role, ResourceConfig=keeping(0)),
    ]
    assert pool(jobs, first)["Status"] == "Available"
    assert [pool(jobs, name).get("Status") for name in others] == [*["Available"] * 4, None]
    assert listed(jobs, "Available", [first, *others]).keys() == {first, *others[:4]}


def test_it_ends_with_its_period_and_by_an_update(jobs, role):
    short = done(jobs, role, seconds=1)
    ended = eventually(lambda: (it := pool(jobs, short))["Status"] == "Terminated" and it)
    assert ended["ResourceRetainedBillableTimeInSeconds"] >= 1
    name = done(jobs, role)
    with pytest.raises(ClientError, match="Available") as refused:
        jobs.sagemaker.delete_training_job(TrainingJobName=name)
    assert refused.value.response["Error"]["Code"] == "ResourceInUse"
    update(jobs, name, 500)
    assert pool(jobs, name)["Status"] == "Available"
    assert jobs.describe(name)["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 500
    update(jobs, name, 0)
    assert pool(jobs, name)["Status"] == "Terminated"
    with pytest.raises(ClientError, match="Completed"):
        update(jobs, name, 500)
    jobs.sagemaker.delete_training_job(TrainingJobName=name)


def test_it_ends_with_the_server(make_house, role):
    house = make_house()
    jobs = Jobs(house)
    name = done(jobs, role)
    assert pool(jobs, name)["Status"] == "Available"
    house.stop()
    house.start()
    jobs.connect()
    assert pool(jobs, name)["Status"] == "Terminated"
