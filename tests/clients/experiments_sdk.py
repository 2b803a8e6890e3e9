"""SDK v2's and v3's `Run`, which are the same code: what both must do."""

import subprocess
import sys
import types

import pytest

# What a program in a training job does with the SDK and the keys that it finds there.
PROGRAM = """
import os
from RUN import load_run
account = os.environ["TRAINING_JOB_ARN"].split(":")[4]
with load_run(artifact_bucket=f"sagemaker-{os.environ['AWS_REGION']}-{account}") as run:
    run.log_parameter("inside", 7)
    for step in range(3):
        run.log_metric("inner", float(step), step=step)
    run.log_file(__file__, name="program")
"""


@pytest.fixture
def scores(monkeypatch):
    """The SDK counts with scikit-learn, of which it needs no more than this."""
    module = types.ModuleType("sklearn.metrics")
    module.confusion_matrix = lambda truth, found: _Matrix(truth, found)
    monkeypatch.setitem(sys.modules, "sklearn", types.ModuleType("sklearn"))
    monkeypatch.setitem(sys.modules, "sklearn.metrics", module)


class _Matrix:
    def __init__(self, truth, found):
        labels = sorted({*truth, *found})
        self.rows = [[sum((t, f) == (a, b) for t, f in zip(truth, found)) for b in labels] for a in labels]

    def tolist(self):
        return self.rows


def a_run_from_beginning_to_analysis(module, session, tmp_path, experiment, analytics=None):
    (tmp_path / "notes.txt").write_text("who survived")
    with module.Run(experiment_name=experiment, run_name="First", sagemaker_session=session) as run:
        run.log_parameter("depth", 3)
        run.log_parameters({"eta": 0.5, "booster": "tree"})
        for step in range(25):
            run.log_metric("loss", 10.0 - step, step=step)
        run.log_file(str(tmp_path / "notes.txt"), name="notes", is_output=False)
        run.log_artifact("model", "s3://tests/model")
        run.log_confusion_matrix([0, 1, 1], [0, 1, 0], title="matrix")
        described = session.sagemaker_client.describe_trial_component(TrialComponentName=f"{experiment.lower()}-first")
        assert described["Status"]["PrimaryStatus"] == "InProgress"
    with pytest.raises(RuntimeError, match="on purpose"):
        with module.Run(experiment_name=experiment, run_name="second", sagemaker_session=session) as run:
            run.log_metric("loss", 1.0)
            raise RuntimeError("on purpose")
    with module.load_run(experiment_name=experiment, run_name="first", sagemaker_session=session) as run:
        run.log_metric("loss", -100.0)
        run.log_file(str(tmp_path / "notes.txt"), name="more")
    component = session.sagemaker_client.describe_trial_component(TrialComponentName=f"{experiment.lower()}-first")
    assert component["Status"]["PrimaryStatus"] == "Completed" and component["EndTime"] > component["StartTime"]
    assert component["Parameters"] == {
        "depth": {"NumberValue": 3.0},
        "eta": {"NumberValue": 0.5},
        "booster": {"StringValue": "tree"},
    }
    (loss,) = component["Metrics"]
    assert (loss["Count"], loss["Min"], loss["Max"], loss["Last"]) == (26, -100.0, 10.0, -100.0)
    assert set(component["OutputArtifacts"]) == {"model", "more"} and set(component["InputArtifacts"]) == {"notes"}
    failed = session.sagemaker_client.describe_trial_component(TrialComponentName=f"{experiment.lower()}-second")
    assert (failed["Status"]["PrimaryStatus"], failed["Status"]["Message"]) == ("Failed", "on purpose")
    runs = module.list_runs(experiment_name=experiment.lower(), sagemaker_session=session)
    assert sorted(run.run_name for run in runs) == ["first", "second"]
    associations = session.sagemaker_client.list_associations(SourceArn=component["TrialComponentArn"])
    assert "ConfusionMatrix" in [it["DestinationType"] for it in associations["AssociationSummaries"]]
    if analytics:
        frame = analytics(experiment_name=experiment.lower(), sagemaker_session=session).dataframe()
        first = frame[frame["TrialComponentName"] == f"{experiment.lower()}-first"].iloc[0]
        assert (first["depth"], first["loss - Min"], first["loss - Count"]) == (3.0, -100.0, 26)
        assert first["model - Value"] == "s3://tests/model" and first["Experiments"] == [experiment.lower()]


def a_run_is_loaded_in_a_job(module, session, jobs, tmp_path, experiment):
    """The job shows its environment and waits; the program runs here with it, as instances do not
    see the SDK.
    """
    with module.Run(experiment_name=experiment, run_name="in-a-job", sagemaker_session=session) as run:
        config = run.experiment_config
    name = jobs.command("env; echo up; exec sleep 60", ExperimentConfig=config)
    jobs.saying(name, "up")
    environment = dict(line.split("=", 1) for line in jobs.lines(name, "algo-1") if "=" in line)
    owner = jobs.house.variables_for_clients()
    environment["AWS_ENDPOINT_URL"] = owner["AWS_ENDPOINT_URL"]
    environment["PATH"] = "/usr/bin:/bin"
    environment["PYTHONPATH"] = ":".join(path for path in sys.path if path)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("RUN", module.__name__))
    ran = subprocess.run([sys.executable, program], env=environment, text=True, capture_output=True)
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    component = jobs.sagemaker.describe_trial_component(TrialComponentName=config["RunName"])
    assert component["Parameters"]["inside"] == {"NumberValue": 7.0}
    assert component["Metrics"][0]["Count"] == 3 and "program" in component["OutputArtifacts"]
    listed = jobs.sagemaker.list_trial_components(ExperimentName=config["ExperimentName"])["TrialComponentSummaries"]
    names = {it["TrialComponentName"] for it in listed}
    assert names == {f"{name}-aws-training-job", config["RunName"]}
