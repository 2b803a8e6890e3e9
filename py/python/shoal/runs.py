"""Runs of experiments as data frames, by the SageMaker API: `shoal.runs.frame("my-experiment")`.

Needs `boto3` and `pandas`, and the environment that `shoal env` prints.
"""

from __future__ import annotations

from typing import Any

#: The ending of a training job's trial component.
_OF_TRAINING_JOB = "-aws-training-job"


def describe(name: str, client: Any = None) -> dict[str, Any]:
    """The trial component of this name, or that of the training job of this name.

    Raises the client's `ResourceNotFound` if there is neither.
    """
    client = client or _client()
    try:
        return client.describe_trial_component(TrialComponentName=name)
    except client.exceptions.ResourceNotFound as error:
        try:
            return client.describe_trial_component(TrialComponentName=name + _OF_TRAINING_JOB)
        except client.exceptions.ResourceNotFound:
            raise error from None


def components(experiment: str, client: Any = None) -> list[dict[str, Any]]:
    """All trial components of an experiment, the newest first."""
    client = client or _client()
    filters = [{"Name": "Parents.ExperimentName", "Operator": "Equals", "Value": experiment}]
    question = {
        "Resource": "ExperimentTrialComponent",
        "SearchExpression": {"Filters": filters},
        "SortBy": "CreationTime",
        "SortOrder": "Descending",
        "MaxResults": 100,
    }
    found: list[dict[str, Any]] = []
    while True:
        answer = client.search(**question)
        found.extend(result["TrialComponent"] for result in answer["Results"])
        if "NextToken" not in answer:
            return found
        question["NextToken"] = answer["NextToken"]


def row(component: dict[str, Any]) -> dict[str, Any]:
    """What a data frame has of a component: name, status, times, parameters, and the last, least and
    greatest value of each metric as `loss`, `loss.min` and `loss.max`.
    """
    of = {
        "name": component["TrialComponentName"],
        "status": component.get("Status", {}).get("PrimaryStatus"),
        "start": component.get("StartTime"),
        "end": component.get("EndTime"),
    }
    for name, value in component.get("Parameters", {}).items():
        of[name] = value.get("NumberValue", value.get("StringValue"))
    for metric in component.get("Metrics", []):
        name = metric["MetricName"]
        of[name], of[f"{name}.min"], of[f"{name}.max"] = metric.get("Last"), metric.get("Min"), metric.get("Max")
    return of


def frame(experiment: str, client: Any = None) -> Any:
    """A `pandas.DataFrame` with a row for each run of an experiment, the newest first."""
    import pandas

    return pandas.DataFrame([row(component) for component in components(experiment, client)])


def compare(*names: str, client: Any = None) -> Any:
    """A `pandas.DataFrame` with a column for each of these runs: parameters that differ, and metrics."""
    import pandas

    client = client or _client()
    runs = {name: row(describe(name, client)) for name in names}
    table = pandas.DataFrame(runs)
    # A value that one run alone has differs, too: newer versions of pandas count no missing ones.
    return table[table.astype(str).nunique(axis=1, dropna=False) > 1]


def _client() -> Any:
    import boto3

    return boto3.client("sagemaker")
