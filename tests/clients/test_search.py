"""Search: every operator, expressions in expressions, orders, pages."""

import datetime

import pytest
from botocore.exceptions import ClientError
from house import eventually


@pytest.fixture(scope="module")
def searched(jobs):
    """Names of four jobs: a, b and c completed with losses and depths, d failed."""
    made = {}
    for letter, loss, depth in [("a", 0.5, "3"), ("b", 0.25, "6"), ("c", 0.125, "10"), ("d", None, "deep")]:
        made[letter] = jobs.script(
            f"echo loss={loss}" if loss else "exit 1",
            name=f"searched-{letter}",
            metrics=[("loss", "loss=([0-9.]+)")],
            instances=2 if letter == "b" else 1,
            channels=[jobs.channel("extra", "code")] if letter == "c" else (),
            HyperParameters={"depth": depth, "eta": "0.5"},
            Tags=[{"Key": "group", "Value": "searched"}, {"Key": "letter", "Value": letter}],
            Environment={"COLOUR": "red" if letter == "a" else "blue"},
        )
    for letter, name in made.items():
        job = jobs.wait(name)
        assert (job["TrainingJobStatus"] == "Failed") == (letter == "d"), job.get("FailureReason")
    return made


def found(jobs, made, filters=(), **options):
    """Letters of the jobs that a search finds, beside the filter for this module's jobs."""
    ours = [{"Name": "Tags.group", "Operator": "Equals", "Value": "searched"}]
    expression = {"Filters": ours}
    if filters or "expression" in options:
        expression["SubExpressions"] = [options.pop("expression", {"Filters": list(filters)})]
    order = {"SortBy": "TrainingJobName", "SortOrder": "Ascending", **options}
    answer = jobs.sagemaker.search(Resource="TrainingJob", SearchExpression=expression, **order)
    letters = {name: letter for letter, name in made.items()}
    names = [result["TrainingJob"]["TrainingJobName"] for result in answer["Results"]]
    assert answer["TotalHits"] == {"Value": len(names), "Relation": "EqualTo"} or "NextToken" in answer
    return "".join(letters[name] for name in names)


@pytest.mark.parametrize(
    "name, operator, value, expected",
    [
        ("TrainingJobStatus", "Equals", "Completed", "abc"),
        ("TrainingJobStatus", None, "Failed", "d"),
        ("TrainingJobStatus", "NotEquals", "Completed", "d"),
        ("TrainingJobStatus", "In", "Failed,Stopped", "d"),
        ("SecondaryStatus", "Equals", "Failed", "d"),
        ("TrainingJobName", "Contains", "searched-b", "b"),
        ("FailureReason", "Exists", None, "d"),
        ("FailureReason", "NotExists", None, "abc"),
        ("FailureReason", "Contains", "exit code: 1", "d"),
        ("Metrics.loss", "LessThan", "0.25", "c"),
        ("Metrics.loss", "LessThanOrEqualTo", "0.25", "bc"),
        ("Metrics.loss", "GreaterThan", "0.2", "ab"),
        ("Metrics.loss", "NotExists", None, "d"),
        ("HyperParameters.depth", "GreaterThanOrEqualTo", "6", "bc"),
        ("HyperParameters.depth", "Equals", "deep", "d"),
        ("HyperParameters.eta", "LessThan", "0.75", "abcd"),
        ("HyperParameters.eta", "GreaterThan", "0", ""),
        ("Tags.letter", "In", "a, c", "ac"),
        ("Environment.COLOUR", "Equals", "red", "a"),
        ("ResourceConfig.InstanceCount", "GreaterThan", "1", "b"),
        ("ResourceConfig.InstanceType", "Equals", "ml.m5.large", "abcd"),
        ("AlgorithmSpecification.TrainingImage", "Contains", "shoal", "abcd"),
        ("EnableManagedSpotTraining", "Equals", "true", ""),
        ("InputDataConfig.ChannelName", "Equals", "extra", "c"),
        ("CreationTime", "GreaterThan", "2020-01-01T00:00:00", "abcd"),
        ("CreationTime", "LessThan", "2020-01-01T00:00:00Z", ""),
    ],
)
def test_operators(jobs, searched, name, operator, value, expected):
    filters = {key: part for key, part in (("Name", name), ("Operator", operator), ("Value", value)) if part}
    assert found(jobs, searched, [filters]) == expected


def test_times_are_compared(jobs, searched):
    created = jobs.describe(searched["b"])["CreationTime"].astimezone(datetime.timezone.utc)
    condition = {"Name": "CreationTime", "Operator": "LessThanOrEqualTo", "Value": created.isoformat()}
    assert found(jobs, searched, [condition]) == "ab"


def test_expressions_nest(jobs, searched):
    letter = lambda value: {"Name": "Tags.letter", "Value": value}
    either = {"Filters": [letter("a"), letter("d")], "Operator": "Or"}
    assert found(jobs, searched, expression=either) == "ad"
    completed = {"Name": "TrainingJobStatus", "Value": "Completed"}
    assert found(jobs, searched, expression={"Filters": [completed], "SubExpressions": [either]}) == "a"
    uri = "InputDataConfig.DataSource.S3DataSource.S3Uri"

    def nested(channel, part):
        filters = [
            {"Name": "InputDataConfig.ChannelName", "Value": channel},
            {"Name": uri, "Operator": "Contains", "Value": part},
        ]
        return {"NestedFilters": [{"NestedPropertyName": "InputDataConfig", "Filters": filters}]}

    assert found(jobs, searched, expression=nested("extra", "tests/code")) == "c"
    assert found(jobs, searched, expression=nested("extra", "tests/code/")) == ""
    assert found(jobs, searched, expression=nested("code", "tests/code/")) == "abcd"


def test_orders(jobs, searched):
    assert found(jobs, searched, SortBy="CreationTime") == "abcd"
    assert found(jobs, searched, SortBy="CreationTime", SortOrder="Descending") == "dcba"
    assert found(jobs, searched, SortBy="Metrics.loss") == "cbad", "what has no such property comes last"
    assert found(jobs, searched, SortBy="HyperParameters.depth", SortOrder="Descending")[-3:] == "cba"
    times = [
        result["TrainingJob"]["LastModifiedTime"]
        for result in jobs.sagemaker.search(Resource="TrainingJob", MaxResults=50)["Results"]
    ]
    assert times == sorted(times, reverse=True), "by default what changed last comes first"


@pytest.mark.parametrize("size", [1, 3, 100])
def test_pages_hold_every_job_once(jobs, searched, size):
    expression = {"Filters": [{"Name": "Tags.group", "Value": "searched"}]}
    paginator = jobs.sagemaker.get_paginator("search")
    pages = paginator.paginate(
        Resource="TrainingJob", SearchExpression=expression, SortBy="Metrics.loss", PaginationConfig={"PageSize": size}
    )
    results = [[result["TrainingJob"]["TrainingJobName"] for result in page["Results"]] for page in pages]
    assert all(len(page) <= size for page in results)
    assert sorted(name for page in results for name in page) == sorted(searched.values())


def test_a_result_is_what_describe_says_with_the_tags(jobs, searched):
    expression = {"Filters": [{"Name": "TrainingJobName", "Value": searched["a"]}]}
    (result,) = jobs.sagemaker.search(Resource="TrainingJob", SearchExpression=expression)["Results"]
    record, description = result["TrainingJob"], jobs.describe(searched["a"])
    assert {"Key": "letter", "Value": "a"} in record.pop("Tags")
    assert {key: description[key] for key in record} == record
    assert record["FinalMetricDataList"][0]["Value"] == 0.5


def test_changes_are_found_at_once(jobs, searched):
    name = jobs.script("sleep 60", name="changes")
    status = lambda: [
        result["TrainingJob"]["TrainingJobStatus"]
        for result in jobs.sagemaker.search(
            Resource="TrainingJob", SearchExpression={"Filters": [{"Name": "TrainingJobName", "Value": name}]}
        )["Results"]
    ]
    assert status() == ["InProgress"]
    arn = jobs.until(name, "Training")["TrainingJobArn"]
    jobs.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "late", "Value": name}])
    late = {"Filters": [{"Name": "Tags.late", "Value": name}, {"Name": "SecondaryStatus", "Value": "Training"}]}
    assert len(jobs.sagemaker.search(Resource="TrainingJob", SearchExpression=late)["Results"]) == 1
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    eventually(lambda: status() == ["Stopped"])
    jobs.sagemaker.delete_training_job(TrainingJobName=name)
    assert status() == []


@pytest.mark.parametrize("resource", ["Endpoint", "Pipeline"])
def test_there_is_nothing_else_to_find(jobs, resource):
    expression = {"Filters": [{"Name": "AnyName", "Operator": "Equals", "Value": "x"}]}
    assert jobs.sagemaker.search(Resource=resource, SearchExpression=expression)["Results"] == []


@pytest.mark.parametrize(
    "request_, named",
    [
        ({"Resource": "Nothing"}, "resource"),
        ({"SearchExpression": {}}, "searchExpression"),
        (
            {"SearchExpression": {"Filters": [{"Name": "Colour", "Value": "x"}]}},
            "searchExpression.filters.1.member.name",
        ),
        (
            {"SearchExpression": {"Filters": [{"Name": "TrainingJobName", "Operator": "LessThan", "Value": "x"}]}},
            "text property",
        ),
        ({"SearchExpression": {"Filters": [{"Name": "CreationTime", "Value": "today"}]}}, "ISO 8601"),
        (
            {"SearchExpression": {"Filters": [{"Name": "TrainingJobName", "Operator": "Contains", "Value": "x"}] * 2}},
            "usage limit of 1",
        ),
        ({"SortBy": "Colour"}, "sortBy"),
        ({"NextToken": "made up"}, "nextToken"),
        ({"MaxResults": 101}, "maxResults"),
    ],
)
def test_refusals(jobs, request_, named):
    with pytest.raises(ClientError) as error:
        jobs.sagemaker.search(**{"Resource": "TrainingJob", **request_})
    answer = error.value.response["Error"]
    assert answer["Code"] == "ValidationException" and named in answer["Message"], answer


def test_a_token_is_for_its_own_question(jobs, searched):
    search = lambda **options: jobs.sagemaker.search(Resource="TrainingJob", MaxResults=1, **options)
    token = search(SortBy="CreationTime")["NextToken"]
    assert search(SortBy="CreationTime", NextToken=token)["Results"]
    changed = token[:-1] + ("1" if token.endswith("0") else "0")
    for options in (
        {"SortBy": "TrainingJobName", "NextToken": token},
        {"SortBy": "CreationTime", "NextToken": changed},
    ):
        with pytest.raises(ClientError) as error:
            search(**options)
        assert error.value.response["Error"]["Code"] == "ValidationException"
