"""Experiments, trials, trial components and lineage with an unmodified boto3: errors of each
operation, pages, Search, jobs with an ExperimentConfig, and what a kill leaves.
"""

import datetime
import importlib.util
import pathlib
import signal
import time

import pytest
from botocore.exceptions import ClientError
from house import eventually
from jobs import Jobs

_SPEC = importlib.util.spec_from_file_location("runs", pathlib.Path(__file__).parents[2] / "py/python/shoal/runs.py")
RUNS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(RUNS)
ABSENT = "arn:aws:sagemaker:us-east-1:123456789012:artifact/absent"


def refused(call, **arguments):
    with pytest.raises(ClientError) as error:
        call(**arguments)
    return error.value.response["Error"]["Code"], error.value.response["Error"]["Message"]


@pytest.fixture(scope="module")
def group(jobs):
    """An experiment with a trial and three runs of it."""
    sagemaker = jobs.sagemaker
    sagemaker.create_experiment(ExperimentName="Clients")
    sagemaker.create_trial(TrialName="clients-runs", ExperimentName="clients")
    for number in range(3):
        sagemaker.create_trial_component(
            TrialComponentName=f"clients-{number}",
            Status={"PrimaryStatus": "InProgress"},
            StartTime=datetime.datetime.now(datetime.timezone.utc),
            Parameters={"lr": {"NumberValue": number / 10}, "kind": {"StringValue": "tree"}},
            Tags=[{"Key": "number", "Value": str(number)}],
        )
        sagemaker.associate_trial_component(TrialComponentName=f"clients-{number}", TrialName="clients-runs")
    return "clients"


def test_names_that_are_missing_or_taken(jobs, group):
    sagemaker = jobs.sagemaker
    for call, arguments in [
        (sagemaker.describe_trial, dict(TrialName="absent")),
        (sagemaker.update_trial, dict(TrialName="absent", DisplayName="x")),
        (sagemaker.delete_trial, dict(TrialName="absent")),
        (sagemaker.list_trials, dict(ExperimentName="absent")),
        (sagemaker.create_trial, dict(TrialName="of-nothing", ExperimentName="absent")),
        (sagemaker.describe_trial_component, dict(TrialComponentName="absent")),
        (sagemaker.update_trial_component, dict(TrialComponentName="absent", DisplayName="x")),
        (sagemaker.delete_trial_component, dict(TrialComponentName="absent")),
        (sagemaker.list_trial_components, dict(TrialName="absent")),
        (sagemaker.associate_trial_component, dict(TrialComponentName="absent", TrialName="clients-runs")),
        (sagemaker.disassociate_trial_component, dict(TrialComponentName="clients-0", TrialName="absent")),
        (sagemaker.describe_artifact, dict(ArtifactArn=ABSENT)),
        (sagemaker.update_artifact, dict(ArtifactArn=ABSENT, ArtifactName="x")),
        (sagemaker.delete_artifact, dict(ArtifactArn=ABSENT)),
        (sagemaker.describe_action, dict(ActionName="absent")),
        (sagemaker.delete_action, dict(ActionName="absent")),
        (sagemaker.describe_context, dict(ContextName="absent")),
        (sagemaker.delete_context, dict(ContextName="absent")),
        (sagemaker.add_association, dict(SourceArn=ABSENT, DestinationArn=ABSENT)),
        (sagemaker.delete_association, dict(SourceArn=ABSENT, DestinationArn=ABSENT)),
        (sagemaker.query_lineage, dict(StartArns=[ABSENT])),
    ]:
        assert refused(call, **arguments)[0] == "ResourceNotFound", (call, arguments)
    for call, arguments, text in [
        (sagemaker.create_trial, dict(TrialName="CLIENTS-runs", ExperimentName="clients"), "already exists"),
        (sagemaker.create_trial_component, dict(TrialComponentName="Clients-0"), "already exists"),
        (
            sagemaker.associate_trial_component,
            dict(TrialComponentName="clients-0", TrialName="clients-runs"),
            "already exists",
        ),
        (sagemaker.delete_experiment, dict(ExperimentName="clients"), "has trials"),
        (sagemaker.delete_trial, dict(TrialName="clients-runs"), "has trial components"),
        (sagemaker.delete_trial_component, dict(TrialComponentName="clients-0"), "is associated"),
        (sagemaker.list_trial_components, dict(TrialName="clients-runs", ExperimentName="clients"), "alternatives"),
        (sagemaker.create_trial_component, dict(TrialComponentName="a_b"), "trialComponentName"),
        (
            sagemaker.create_trial_component,
            dict(TrialComponentName="ab", Parameters={"both": {"NumberValue": 1.0, "StringValue": "1"}}),
            "parameters.both",
        ),
        (sagemaker.query_lineage, {}, "StartArns"),
    ]:
        code, message = refused(call, **arguments)
        assert (code, text in message) == ("ValidationException", True), (call, arguments, message)


def test_pages_and_filters(jobs, group):
    pages = jobs.sagemaker.get_paginator("list_trial_components").paginate(
        ExperimentName="CLIENTS", SortBy="Name", SortOrder="Ascending", PaginationConfig={"PageSize": 2}
    )
    names = [[item["TrialComponentName"] for item in page["TrialComponentSummaries"]] for page in pages]
    assert names == [["clients-0", "clients-1"], ["clients-2"]]
    (trial,) = jobs.sagemaker.list_trials(TrialComponentName="clients-1")["TrialSummaries"]
    assert (trial["TrialName"], trial["DisplayName"]) == ("clients-runs", "clients-runs")
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    assert not jobs.sagemaker.list_trial_components(CreatedBefore=past)["TrialComponentSummaries"]


def test_updates_and_searches_follow_at_once(jobs, house, group):
    sagemaker, metrics = jobs.sagemaker, house.client("sagemaker-metrics")
    sagemaker.update_trial_component(
        TrialComponentName="clients-1",
        Status={"PrimaryStatus": "Completed"},
        Parameters={"depth": {"NumberValue": 6}},
        ParametersToRemove=["kind"],
        OutputArtifacts={"model": {"Value": "s3://tests/model", "MediaType": "application/x-tar"}},
    )
    for number in range(3):
        data = [
            {"MetricName": "loss", "Timestamp": str(int(time.time())), "Step": step, "Value": float(number + step)}
            for step in range(10)
        ]
        assert "Errors" not in metrics.batch_put_metrics(TrialComponentName=f"clients-{number}", MetricData=data)

    def found(*filters, **options):
        expression = {"Filters": [{"Name": "Parents.ExperimentName", "Value": "Clients"}, *filters]}
        answer = sagemaker.search(Resource="ExperimentTrialComponent", SearchExpression=expression, **options)
        return [result["TrialComponent"] for result in answer["Results"]]

    names = lambda *filters, **options: "".join(it["TrialComponentName"][-1] for it in found(*filters, **options))
    assert names(SortBy="Metrics.loss.Max", SortOrder="Descending") == "210"
    assert names({"Name": "Parameters.lr.NumberValue", "Operator": "GreaterThan", "Value": "0.15"}) == "2"
    assert names({"Name": "Status.PrimaryStatus", "Value": "Completed"}) == "1"
    assert names({"Name": "Tags.number", "Operator": "In", "Value": "0, 2"}, SortBy="CreationTime") == "20"
    assert names()[0] == "1", "by default what changed last comes first"
    (one,) = found({"Name": "TrialComponentName", "Value": "clients-1"})
    assert one["Parameters"] == {"lr": {"NumberValue": 0.1}, "depth": {"NumberValue": 6.0}}
    assert one["Parents"] == [{"TrialName": "clients-runs", "ExperimentName": "clients"}], "as the trial has it"
    (loss,) = one["Metrics"]
    assert (loss["MetricName"], loss["Min"], loss["Max"], loss["Last"]) == ("loss", 1, 10, 10)
    assert (loss["Count"], loss["Avg"], loss["StdDev"]) == (10, 5.5, pytest.approx(2.8722813))
    described = sagemaker.describe_trial_component(TrialComponentName=one["TrialComponentArn"])
    assert described["Metrics"] == one["Metrics"] and described["OutputArtifacts"] == one["OutputArtifacts"]


def test_runs_are_tables(jobs, house, group):
    listed = house.shoal("runs", "list", "--experiment", group).stdout
    assert "clients-2" in listed and "loss=11" in listed, listed
    absent = house.shoal("runs", "list", "--experiment", "absent", check=False)
    assert absent.returncode == 5 and "there is no experiment absent" in absent.stderr, absent.stderr
    compared = house.shoal("runs", "compare", "clients-0", "clients-2").stdout
    assert "lr" in compared and "0.2" in compared and "kind" not in compared, compared
    missing = house.shoal("runs", "compare", "clients-0", "absent", check=False)
    assert missing.returncode != 0 and "absent" in missing.stderr, missing.stderr
    frame = RUNS.frame(group, jobs.sagemaker)
    assert len(frame) == 3 and frame.set_index("name").loc["clients-2"]["loss.max"] == 11
    assert list(RUNS.compare("clients-0", "clients-2", client=jobs.sagemaker).loc["lr"]) == [0.0, 0.2]
    alone = RUNS.compare("clients-0", "clients-1", client=jobs.sagemaker).loc["depth"]
    assert alone["clients-1"] == 6 and alone.isna()["clients-0"], "what one run alone has"


def test_lineage_of_a_model(jobs, group):
    sagemaker = jobs.sagemaker
    run = sagemaker.describe_trial_component(TrialComponentName="clients-2")["TrialComponentArn"]
    source = lambda name: {"SourceUri": f"s3://tests/{name}", "SourceTypes": [{"SourceIdType": "S3ETag", "Value": "1"}]}
    data = sagemaker.create_artifact(Source=source("data"), ArtifactType="DataSet")["ArtifactArn"]
    model = sagemaker.create_artifact(Source=source("model"), ArtifactType="Model", Properties={"a": "1", "b": "2"})
    code, message = refused(sagemaker.create_artifact, Source=source("data"), ArtifactType="DataSet")
    assert code == "ValidationException" and "already exists" in message
    model = model["ArtifactArn"]
    sagemaker.update_artifact(ArtifactArn=model, ArtifactName="the-model", PropertiesToRemove=["a"])
    assert sagemaker.describe_artifact(ArtifactArn=model)["Properties"] == {"b": "2"}
    sagemaker.add_association(SourceArn=data, DestinationArn=run, AssociationType="ContributedTo")
    sagemaker.add_association(SourceArn=run, DestinationArn=model, AssociationType="Produced")
    code, message = refused(sagemaker.add_association, SourceArn=run, DestinationArn=model, AssociationType="Produced")
    assert code == "ValidationException" and "already exists" in message
    (produced,) = sagemaker.list_associations(SourceArn=run)["AssociationSummaries"]
    assert (produced["DestinationName"], produced["DestinationType"]) == ("the-model", "Model")
    answer = sagemaker.query_lineage(StartArns=[model], Direction="Ascendants", IncludeEdges=True)
    assert [vertex["LineageType"] for vertex in answer["Vertices"]] == ["TrialComponent", "Artifact"]
    assert len(answer["Edges"]) == 2
    (listed,) = sagemaker.list_artifacts(SourceUri="s3://tests/data")["ArtifactSummaries"]
    assert listed["ArtifactArn"] == data
    assert refused(sagemaker.delete_artifact, ArtifactArn=data)[0] == "ValidationException"
    sagemaker.delete_association(SourceArn=data, DestinationArn=run)
    sagemaker.delete_artifact(Source=source("data"))
    for create, delete, name in [
        (sagemaker.create_action, sagemaker.delete_action, "Action"),
        (sagemaker.create_context, sagemaker.delete_context, "Context"),
    ]:
        named = {f"{name}Name": f"the-{name.lower()}"}
        create(**named, **{f"{name}Type": "Endpoint"}, Source={"SourceUri": "s3://tests/model"})
        code, message = refused(create, **named, **{f"{name}Type": "x"}, Source={"SourceUri": "y"})
        assert code == "ValidationException" and "already exists" in message
        delete(**named)


def test_a_job_and_its_component_outlive_a_kill(new_house):
    """The component, the trial that was missing and their association come with the job."""
    house = new_house()
    jobs = Jobs(house)
    jobs.sagemaker.create_experiment(ExperimentName="killed")
    assert refused(jobs.command, line="true", ExperimentConfig={"ExperimentName": "absent"})[0] == "ResourceNotFound"
    config = {"ExperimentName": "killed", "TrialName": "made", "TrialComponentDisplayName": "shown"}
    name = jobs.command(
        "echo loss=0.5; sleep 2",
        metrics=[("loss", "loss=(.*)")],
        ExperimentConfig=config,
        HyperParameters={"eta": "0.25", "kind": "tree"},
    )
    house.stop(signal.SIGKILL)
    house.start()
    jobs.connect()
    sagemaker = jobs.sagemaker
    described = jobs.completed(name)
    assert described["ExperimentConfig"] == config
    (component,) = sagemaker.list_trial_components(TrialName="made")["TrialComponentSummaries"]
    assert component["TrialComponentName"] == f"{name}-aws-training-job" and component["DisplayName"] == "shown"
    assert component["TrialComponentSource"]["SourceArn"] == described["TrainingJobArn"]
    shown = sagemaker.describe_trial_component(TrialComponentName=component["TrialComponentName"])
    assert shown["Status"]["PrimaryStatus"] == "Completed" and shown["EndTime"] == described["TrainingEndTime"]
    assert shown["Parameters"]["eta"] == {"NumberValue": 0.25} and shown["Parameters"]["kind"] == {
        "StringValue": "tree"
    }
    assert (
        shown["OutputArtifacts"]["SageMaker.ModelArtifact"]["Value"] == described["ModelArtifacts"]["S3ModelArtifacts"]
    )
    assert [(it["MetricName"], it["Last"], it["Count"]) for it in shown["Metrics"]] == [("loss", 0.5, 1)]
    found = sagemaker.search(
        Resource="ExperimentTrialComponent",
        SearchExpression={"Filters": [{"Name": "Metrics.loss.Last", "Operator": "LessThan", "Value": "1"}]},
    )["Results"]
    assert [it["TrialComponent"]["SourceDetail"]["TrainingJob"]["TrainingJobName"] for it in found] == [name]
    sagemaker.delete_training_job(TrainingJobName=name)
    kept = sagemaker.describe_trial_component(TrialComponentName=component["TrialComponentName"])
    assert kept["Metrics"] == shown["Metrics"] and kept["Parameters"] == shown["Parameters"]
    eventually(lambda: not sagemaker.list_training_jobs()["TrainingJobSummaries"])
