"""Tuning jobs by boto3: real training jobs, what is told of them, and the errors."""

import base64
import json
import re

import botocore.exceptions
import data
import pytest
import records
from house import eventually
from tuning_jobs import Tuning

NAME = re.compile(r"^bowl-\d+-\d{3}-[0-9a-f]{8}$")


@pytest.fixture(scope="module")
def tuning(jobs):
    return Tuning(jobs)


@pytest.fixture(scope="module")
def tuned(tuning):
    """A tuning job of the user's program that is over."""
    request = tuning.request(tuning.definition(epochs=2))
    request["Tags"] = [{"Key": "team", "Value": "trees"}]
    name = tuning.create(request)
    return request, tuning.completed(name)


def test_describe_tells_the_request_and_what_became_of_it(tuning, tuned):
    request, told = tuned
    name = request["HyperParameterTuningJobName"]
    assert (
        told["HyperParameterTuningJobArn"]
        == f"arn:aws:sagemaker:us-east-1:123456789012:hyper-parameter-tuning-job/{name}"
    )
    assert told["TrainingJobStatusCounters"] == {
        "Completed": 4, "InProgress": 0, "RetryableError": 0, "NonRetryableError": 0, "Stopped": 0,
    }  # fmt: skip
    assert told["ObjectiveStatusCounters"] == {"Succeeded": 4, "Pending": 0, "Failed": 0}
    statics = told["TrainingJobDefinition"]["StaticHyperParameters"]
    assert statics == {**request["TrainingJobDefinition"]["StaticHyperParameters"], "_tuning_objective_metric": "loss"}
    (range_,) = told["HyperParameterTuningJobConfig"]["ParameterRanges"]["ContinuousParameterRanges"]
    assert (range_["MinValue"], range_["MaxValue"]) == ("0", "1.0")
    assert "Tags" not in told and told["CreationTime"] <= told["HyperParameterTuningEndTime"]
    best = told["BestTrainingJob"]
    values = {
        it["TrainingJobName"]: it["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] for it in tuning.trials(name)
    }
    assert values[best["TrainingJobName"]] == min(values.values())
    assert (
        best["FinalHyperParameterTuningJobObjectiveMetric"]["MetricName"] == "loss"
        and best["ObjectiveStatus"] == "Succeeded"
    )
    assert "OverallBestTrainingJob" not in told and told["ConsumedResources"]["RuntimeInSeconds"] >= 1


def test_training_jobs_are_ordinary_ones_with_the_tuned_values(tuning, jobs, tuned):
    request, told = tuned
    name = request["HyperParameterTuningJobName"]
    trials = tuning.trials(name)
    assert len(trials) == 4 and len({it["TunedHyperParameters"]["x"] for it in trials}) == 4
    for trial in trials:
        assert NAME.match(trial["TrainingJobName"]), trial["TrainingJobName"]
        x = float(trial["TunedHyperParameters"]["x"])
        value = trial["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]
        assert 0 <= x <= 1 and value == pytest.approx((x - 0.3) ** 2 + 0.5, abs=1e-6)
        job = jobs.describe(trial["TrainingJobName"])
        assert job["TuningJobArn"] == told["HyperParameterTuningJobArn"]
        assert job["HyperParameters"]["_tuning_objective_metric"] == "loss"
        assert (
            job["HyperParameters"]["x"] == trial["TunedHyperParameters"]["x"]
            and job["HyperParameters"]["epochs"] == "2"
        )
        tags = tuning.client.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]
        assert tags == [{"Key": "team", "Value": "trees"}], "a tuning job's tags are its training jobs', too"
    names = {it["TrainingJobName"] for it in trials}
    listed = tuning.client.list_training_jobs(NameContains=name + "-", MaxResults=100)["TrainingJobSummaries"]
    assert {it["TrainingJobName"] for it in listed} == names
    filters = [{"Name": "TuningJobArn", "Operator": "Equals", "Value": told["HyperParameterTuningJobArn"]}]
    found = tuning.client.search(Resource="TrainingJob", SearchExpression={"Filters": filters})["Results"]
    assert {it["TrainingJob"]["TrainingJobName"] for it in found} == names


def test_lists_have_orders_filters_and_pages(tuning, tuned):
    name = tuned[0]["HyperParameterTuningJobName"]
    value = lambda it: it["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]  # noqa: E731
    by_value = tuning.trials(name, SortBy="FinalObjectiveMetricValue", MaxResults=3)
    assert [value(it) for it in by_value] == sorted(value(it) for it in by_value) and len(by_value) == 4
    down = tuning.trials(name, SortBy="FinalObjectiveMetricValue", SortOrder="Descending", MaxResults=1)
    assert [it["TrainingJobName"] for it in down] == [it["TrainingJobName"] for it in reversed(by_value)]
    by_name = [it["TrainingJobName"] for it in tuning.trials(name)]
    assert by_name == sorted(by_name) and tuning.trials(name, StatusEquals="Failed") == []
    page = tuning.client.list_training_jobs_for_hyper_parameter_tuning_job(
        HyperParameterTuningJobName=name, MaxResults=1
    )
    with pytest.raises(botocore.exceptions.ClientError, match="nextToken"):
        tuning.client.list_training_jobs_for_hyper_parameter_tuning_job(
            HyperParameterTuningJobName=name, NextToken=page["NextToken"], SortBy="Status"
        )
    listed = tuning.client.list_hyper_parameter_tuning_jobs(NameContains=name, StatusEquals="Completed")
    summary = next(it for it in listed["HyperParameterTuningJobSummaries"] if it["HyperParameterTuningJobName"] == name)
    assert summary["Strategy"] == "Random" and summary["TrainingJobStatusCounters"]["Completed"] == 4
    assert summary["ResourceLimits"] == {"MaxNumberOfTrainingJobs": 4, "MaxParallelTrainingJobs": 2}


def test_tuning_jobs_have_tags_and_are_searched_for(tuning, tuned):
    arn = tuned[1]["HyperParameterTuningJobArn"]
    tuning.client.add_tags(ResourceArn=arn, Tags=[{"Key": "kind", "Value": "bowl"}])
    tuning.client.delete_tags(ResourceArn=arn, TagKeys=["team"])
    assert tuning.client.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "kind", "Value": "bowl"}]
    filters = [
        {"Name": "Tags.kind", "Operator": "Equals", "Value": "bowl"},
        {"Name": "HyperParameterTuningJobStatus", "Operator": "Equals", "Value": "Completed"},
        {"Name": "TrainingJobStatusCounters.Completed", "Operator": "GreaterThan", "Value": "3"},
    ]
    found = tuning.client.search(Resource="HyperParameterTuningJob", SearchExpression={"Filters": filters})
    assert [it["HyperParameterTuningJob"]["HyperParameterTuningJobArn"] for it in found["Results"]] == [arn]
    filters[2]["Value"] = "4"
    assert (
        tuning.client.search(Resource="HyperParameterTuningJob", SearchExpression={"Filters": filters})["Results"] == []
    )


def test_the_same_seed_gives_the_same_training_jobs(tuning, tuned):
    again = tuning.create(tuning.request(tuning.definition(epochs=2)))
    tuning.completed(again)
    values = lambda name: sorted(it["TunedHyperParameters"]["x"] for it in tuning.trials(name))  # noqa: E731
    assert values(again) == values(tuned[0]["HyperParameterTuningJobName"])


def test_the_built_in_algorithm_needs_no_definitions_of_metrics(tuning, jobs):
    jobs.put("tuning/train/all.csv", data.as_csv(data.rows(600, 1)))
    jobs.put("tuning/validation/all.csv", data.as_csv(data.rows(300, 2)))
    ranges = {
        "IntegerParameterRanges": [{"Name": "max_depth", "MinValue": "1", "MaxValue": "6", "ScalingType": "Linear"}],
        "ContinuousParameterRanges": [
            {"Name": "eta", "MinValue": "0.01", "MaxValue": "1", "ScalingType": "Logarithmic"}
        ],
        "CategoricalParameterRanges": [{"Name": "booster", "Values": ["gbtree", "dart"]}],
    }
    definition = tuning.xgboost(objective="binary:logistic", num_round=8)
    request = tuning.request(
        definition, ("Maximize", "validation:auc"), ranges, jobs=6, parallel=2, strategy="Bayesian"
    )
    told = tuning.completed(tuning.create(request))
    best = told["BestTrainingJob"]["FinalHyperParameterTuningJobObjectiveMetric"]
    assert (best["Type"], best["MetricName"]) == ("Maximize", "validation:auc") and best["Value"] > 0.9
    names = {it["Name"] for it in told["TrainingJobDefinition"]["AlgorithmSpecification"]["MetricDefinitions"]}
    assert "validation:auc" in names, "what the platform supplies is told"
    assert jobs.metrics(told["BestTrainingJob"]["TrainingJobName"])["validation:auc"] == pytest.approx(
        best["Value"], abs=1e-6
    )


@pytest.mark.parametrize(
    ("kind", "metric", "field", "part"),
    [
        ("Minimize", "train:logloss", "metricName", "isn't valid for the [683313688378"),
        ("Minimize", "validation:loss", "metricName", "validation:logloss"),
        ("Minimize", "validation:auc", "type", "Choose a valid objective metric type: Maximize."),
        ("Maximize", "validation:logloss", "type", "Choose a valid objective metric type: Minimize."),
    ],
)
@pytest.mark.parametrize("listed", [False, True], ids=["one", "listed"])
def test_an_objective_that_the_built_in_algorithm_does_not_have_is_refused(
    tuning, jobs, kind, metric, field, part, listed
):
    for channel in ("train", "validation"):
        jobs.put(f"tuning/{channel}/all.csv", data.as_csv(data.rows(60, 1)))
    request = tuning.request(tuning.xgboost(objective="binary:logistic", num_round=2), (kind, metric))
    ranges = request["HyperParameterTuningJobConfig"]["ParameterRanges"]
    ranges["ContinuousParameterRanges"] = [{"Name": "eta", "MinValue": "0.1", "MaxValue": "0.5"}]
    path = "hyperParameterTuningJobConfig.hyperParameterTuningJobObjective"
    if listed:
        config, definition = request["HyperParameterTuningJobConfig"], request.pop("TrainingJobDefinition")
        objective, ranges = config.pop("HyperParameterTuningJobObjective"), config.pop("ParameterRanges")
        request["TrainingJobDefinitions"] = [
            {**definition, "DefinitionName": "a", "TuningObjective": objective, "HyperParameterRanges": ranges}
        ]
        path = "trainingJobDefinitions.1.member.tuningObjective"
    with pytest.raises(botocore.exceptions.ClientError) as error:
        tuning.create(request)
    told = error.value.response["Error"]
    assert (
        told["Code"] == "ValidationException"
        and f"'{path}.{field}'" in told["Message"]
        and f"[{metric}]" in told["Message"]
    ), told
    assert part in told["Message"], told


def test_hyperband_stops_training_jobs_early(tuning):
    definition = tuning.definition(epochs=9, pause=0.02)
    request = tuning.request(
        definition,
        jobs=9,
        parallel=3,
        strategy="Hyperband",
        StrategyConfig={"HyperbandStrategyConfig": {"MinResource": 1, "MaxResource": 9}},
    )
    told = tuning.completed(tuning.create(request))
    counters = told["TrainingJobStatusCounters"]
    assert counters["Completed"] + counters["Stopped"] == 9 and counters["Stopped"] > 0, counters
    assert told["ObjectiveStatusCounters"]["Succeeded"] == 9, "one that is stopped has what it reached"


def test_a_grid_tries_every_combination(tuning):
    ranges = {
        "CategoricalParameterRanges": [
            {"Name": "x", "Values": ["0", "0.3", "1"]},
            {"Name": "depth", "Values": ["1", "2"]},
        ]
    }
    request = tuning.request(tuning.definition(epochs=1), ranges=ranges, strategy="Grid")
    del request["HyperParameterTuningJobConfig"]["ResourceLimits"]["MaxNumberOfTrainingJobs"]
    name = tuning.create(request)
    told = tuning.completed(name)
    tried = {(it["TunedHyperParameters"]["x"], it["TunedHyperParameters"]["depth"]) for it in tuning.trials(name)}
    assert len(tried) == told["TrainingJobStatusCounters"]["Completed"] == 6
    assert told["BestTrainingJob"]["TunedHyperParameters"]["x"] == "0.3"


def test_several_definitions_are_tuned_together(tuning):
    request = tuning.request(tuning.definition(epochs=1))
    config, one = request["HyperParameterTuningJobConfig"], request.pop("TrainingJobDefinition")
    objective, ranges = config.pop("HyperParameterTuningJobObjective"), config.pop("ParameterRanges")
    request["TrainingJobDefinitions"] = [
        {**one, "DefinitionName": name, "TuningObjective": objective, "HyperParameterRanges": ranges}
        for name in ("a", "b")
    ]
    name = tuning.create(request)
    told = tuning.completed(name)
    trials = tuning.trials(name)
    assert [it["DefinitionName"] for it in told["TrainingJobDefinitions"]] == ["a", "b"]
    assert sorted(it["TrainingJobDefinitionName"] for it in trials) == ["a", "a", "b", "b"]
    assert told["BestTrainingJob"]["TrainingJobDefinitionName"] in ("a", "b")


def test_a_stop_ends_the_training_jobs_and_a_deletion_leaves_them(tuning, jobs):
    name = tuning.create(tuning.request(tuning.definition(epochs=1000, pause=0.1)))
    trials = eventually(lambda: len(it := tuning.trials(name)) == 2 and it)
    jobs.saying(trials[0]["TrainingJobName"], "epoch=2")
    with pytest.raises(botocore.exceptions.ClientError, match="only tuning jobs in a terminal state"):
        tuning.client.delete_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    tuning.client.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    told = tuning.wait(name)
    assert told["HyperParameterTuningJobStatus"] == "Stopped" and told["TrainingJobStatusCounters"]["Stopped"] == 2
    with pytest.raises(botocore.exceptions.ClientError, match="Stopped"):
        tuning.client.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    tuning.client.delete_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    with pytest.raises(
        tuning.client.exceptions.ResourceNotFound, match=f"can't find a tuning job called {name}. Type another name."
    ):
        tuning.describe(name)
    assert jobs.describe(trials[0]["TrainingJobName"])["TrainingJobStatus"] == "Stopped"


def test_a_stopped_training_job_is_one_less(tuning, jobs):
    name = tuning.create(tuning.request(tuning.definition(epochs=1000, pause=0.1), jobs=2))
    first = eventually(lambda: (it := tuning.trials(name)) and it[0]["TrainingJobName"])
    jobs.saying(first, "epoch=2")
    tuning.client.stop_training_job(TrainingJobName=first)
    eventually(lambda: tuning.describe(name)["TrainingJobStatusCounters"]["Stopped"] == 1)
    summary = next(it for it in tuning.trials(name) if it["TrainingJobName"] == first)
    assert (summary["TrainingJobStatus"], summary["ObjectiveStatus"]) == ("Stopped", "Succeeded")
    tuning.client.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    tuning.wait(name)


def test_a_target_that_is_reached_ends_the_tuning_job(tuning):
    request = tuning.request(
        tuning.definition(epochs=1),
        jobs=50,
        parallel=1,
        TuningJobCompletionCriteria={"TargetObjectiveMetricValue": 1.2},
    )
    told = tuning.completed(tuning.create(request))
    assert told["TrainingJobStatusCounters"]["Completed"] < 50
    assert told["BestTrainingJob"]["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] <= 1.2


def test_an_objective_that_never_appears_is_told_with_what_came_near(tuning):
    definition = tuning.definition(epochs=1)
    definition["AlgorithmSpecification"]["MetricDefinitions"][0]["Regex"] = "Loss: ([0-9.]+)"
    told = tuning.wait(tuning.create(tuning.request(definition)))
    assert told["HyperParameterTuningJobStatus"] == "Failed"
    assert (
        "No objective metrics found after running" in told["FailureReason"] and "epoch=1 loss=" in told["FailureReason"]
    )
    assert told["ObjectiveStatusCounters"]["Failed"] >= 1


def test_training_jobs_that_all_fail_fail_the_tuning_job(tuning):
    told = tuning.wait(tuning.create(tuning.request(tuning.definition(epochs=1, fails="true"))))
    assert (
        told["HyperParameterTuningJobStatus"] == "Failed" and told["TrainingJobStatusCounters"]["NonRetryableError"] > 0
    )
    assert "it was to fail" in told["FailureReason"]


def test_a_warm_start_knows_its_parents(tuning, tuned):
    parent = tuned[0]["HyperParameterTuningJobName"]
    request = tuning.request(tuning.definition(epochs=2), jobs=2, strategy="Bayesian")
    start = {
        "WarmStartType": "IdenticalDataAndAlgorithm",
        "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": parent}],
    }
    request["WarmStartConfig"] = start
    told = tuning.completed(tuning.create(request))
    assert told["WarmStartConfig"] == start
    values = [
        it["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]
        for it in (told["BestTrainingJob"], tuned[1]["BestTrainingJob"])
    ]
    overall = told["OverallBestTrainingJob"]
    assert overall["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] == min(values)
    assert overall["TuningJobName"] == (parent if values[1] < values[0] else told["HyperParameterTuningJobName"])


def test_a_warm_start_learns_from_hyperband(tuning, jobs):
    """Its trials are stopped wherever they are: those that came to the greatest resource are
    whole, and no others.
    """
    definition = tuning.definition(epochs=9, pause=0.05)
    limits = {"HyperbandStrategyConfig": {"MinResource": 1, "MaxResource": 9}}
    parent = tuning.create(tuning.request(definition, jobs=9, parallel=2, strategy="Hyperband", StrategyConfig=limits))
    tuning.completed(parent)
    results = [
        (float(it["TunedHyperParameters"]["x"]), it["FinalHyperParameterTuningJobObjectiveMetric"]["Value"])
        for it in tuning.trials(parent)
    ]
    whole = sorted(value for x, value in results if value == pytest.approx((x - 0.3) ** 2 + 1 / 9, abs=1e-6))
    request = tuning.request(definition, jobs=2, strategy="Bayesian")
    request["WarmStartConfig"] = {
        "WarmStartType": "IdenticalDataAndAlgorithm",
        "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": parent}],
    }
    name = tuning.create(request)
    tuning.completed(name)
    known = [row["record"]["outcome"] for row in records.study(jobs.house, name) if row["record"]["type"] == "injected"]
    assert 0 < len(known) < 9
    assert sorted(value for outcome in known for value in outcome["completed"]["values"]) == pytest.approx(whole)


def test_autotune_finds_ranges(tuning):
    ranges = {"AutoParameters": [{"Name": "x", "ValueHint": "0.5"}, {"Name": "kind", "ValueHint": "plain"}]}
    request = tuning.request(tuning.definition(epochs=1), ranges=ranges, jobs=3)
    request["Autotune"] = {"Mode": "Enabled"}
    name = tuning.create(request)
    assert tuning.completed(name)["Autotune"] == {"Mode": "Enabled"}
    for trial in tuning.trials(name):
        assert set(trial["TunedHyperParameters"]) == {"x"} and 0.05 <= float(trial["TunedHyperParameters"]["x"]) <= 1


@pytest.mark.parametrize(
    "strategy",
    ["tpe", "asha", json.dumps({"searcher": "tpe", "conditions": {"depth": {"parent": "kind", "in": ["deep"]}}})],
    ids=["tpe", "asha", "conditions"],
)
def test_strategies_that_aws_does_not_have(tuning, strategy):
    ranges = {
        "ContinuousParameterRanges": [{"Name": "x", "MinValue": "0", "MaxValue": "1"}],
        "IntegerParameterRanges": [{"Name": "depth", "MinValue": "1", "MaxValue": "5"}],
        "CategoricalParameterRanges": [{"Name": "kind", "Values": ["deep", "flat"]}],
    }
    request = tuning.request(tuning.definition(epochs=4), ranges=ranges, jobs=6, parallel=2)
    value = base64.b64encode(strategy.encode()).decode() if strategy.startswith("{") else strategy
    request["Tags"] = [{"Key": "shoal:strategy", "Value": value}]
    name = tuning.create(request)
    counters = tuning.completed(name)["TrainingJobStatusCounters"]
    assert counters["Completed"] + counters["Stopped"] == 6
    if strategy.startswith("{"):
        for trial in tuning.trials(name):
            tuned = trial["TunedHyperParameters"]
            assert ("depth" in tuned) == (tuned["kind"] == "deep")


def changed(request, path, value):
    *parents, last = path.split("/")
    node = request
    for name in parents:
        node = node[name]
    node[last] = value


CONFIG = "HyperParameterTuningJobConfig"


@pytest.mark.parametrize(
    ("path", "value", "code", "part"),
    [
        ("TrainingJobDefinition/AlgorithmSpecification/MetricDefinitions", [], "ValidationException", "A metric is required for this"),
        ("TrainingJobDefinition/AlgorithmSpecification/TrainingImage", "no/such:1", "ValidationException", "trainingJobDefinition"),
        ("TrainingJobDefinition/OutputDataConfig", {"S3OutputPath": "s3://no-such-bucket/x"}, "ValidationException", "does not exist"),
        ("TrainingJobDefinition/ResourceConfig/InstanceType", "ml.p5.48xlarge", "ResourceLimitExceeded", "ml.p5.48xlarge"),
        ("HyperParameterTuningJobName", "bowl-taken", "ResourceInUse",
         "A hyperparameter tuning job with the name, bowl-taken, already exists. Choose a different name."),
        ("WarmStartConfig", {"WarmStartType": "TransferLearning", "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": "none"}]},
         "ResourceNotFound", "can't find a tuning job called none. Type another name."),
        ("WarmStartConfig", {"WarmStartType": "TransferLearning", "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": "bowl-taken"}]},
         "ValidationException", "parents must be Completed, Stopped or Failed"),
        (f"{CONFIG}/ResourceLimits/MaxParallelTrainingJobs", 1001, "ResourceLimitExceeded", "MaxParallelTrainingJobs"),
        (f"{CONFIG}/TrainingJobEarlyStoppingType", "Sometimes", "ValidationException", "[Off, Auto]"),
        ("Tags", [{"Key": "shoal:strategy", "Value": "no-such-strategy"}], "ValidationException", "there is no strategy"),
    ],
)  # fmt: skip
def test_mistakes_are_told(tuning, taken, path, value, code, part):
    request = tuning.request(tuning.definition(epochs=1))
    changed(request, path, value)
    with pytest.raises(botocore.exceptions.ClientError) as error:
        tuning.create(request)
    assert error.value.response["Error"]["Code"] == code and part in error.value.response["Error"]["Message"], (
        error.value
    )


@pytest.fixture(scope="module")
def taken(tuning):
    """A tuning job that goes on all the time."""
    request = tuning.request(tuning.definition(epochs=10000, pause=0.1), jobs=1, parallel=1)
    request["HyperParameterTuningJobName"] = "bowl-taken"
    yield tuning.create(request)
    tuning.client.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName="bowl-taken")
    tuning.wait("bowl-taken")


def test_hyperband_must_know_how_long_a_training_job_is(tuning):
    with pytest.raises(
        botocore.exceptions.ClientError, match="MaxResource parameter is not provided and could not be inferred"
    ):
        tuning.create(tuning.request(tuning.definition(), strategy="Hyperband"))


def test_too_few_combinations_are_told(tuning):
    ranges = {"CategoricalParameterRanges": [{"Name": "x", "Values": ["0", "0.5", "1"]}]}
    with pytest.raises(
        botocore.exceptions.ClientError, match=r"for the provided ranges \[3.0\] must be equal or greater .* \[10\]"
    ):
        tuning.create(tuning.request(tuning.definition(epochs=1), ranges=ranges, jobs=10))


@pytest.mark.parametrize("operation", ["describe", "stop", "list_training_jobs_for"])
def test_unknown_tuning_jobs_are_not_found(tuning, operation):
    name = operation + ("_" if operation.endswith("_for") else "_") + "hyper_parameter_tuning_job"
    with pytest.raises(
        tuning.client.exceptions.ResourceNotFound, match="can't find a tuning job called nobody. Type another name."
    ):
        getattr(tuning.client, name)(HyperParameterTuningJobName="nobody")
