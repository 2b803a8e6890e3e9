"""`sagemaker.experiments` of SDK v2 and `ExperimentAnalytics`, unmodified."""

import pytest
import sagemaker
import sagemaker.experiments.run as experiments
from experiments_sdk import a_run_from_beginning_to_analysis, a_run_is_loaded_in_a_job, scores  # noqa: F401
from jobs import ROLE
from sagemaker.analytics import ExperimentAnalytics
from sagemaker.estimator import Estimator


@pytest.fixture(scope="module")
def session(environment):
    return sagemaker.Session()


def test_a_run_from_beginning_to_analysis(session, scores, tmp_path):  # noqa: F811
    a_run_from_beginning_to_analysis(experiments, session, tmp_path, "Titanic-v2", ExperimentAnalytics)


def test_a_run_is_loaded_in_a_job(session, jobs, tmp_path):
    a_run_is_loaded_in_a_job(experiments, session, jobs, tmp_path, "inside-v2")


def test_an_estimator_in_a_run_belongs_to_it(session):
    estimator = Estimator(
        image_uri="shoal/host",
        role=ROLE,
        instance_count=1,
        instance_type="ml.m5.large",
        container_entry_point=["sh", "-c"],
        container_arguments=["echo 'loss: 0.5'"],
        metric_definitions=[{"Name": "loss", "Regex": r"loss: (\S+)"}],
        sagemaker_session=session,
    )
    with experiments.Run(experiment_name="fitted", run_name="first", sagemaker_session=session) as run:
        estimator.fit(logs=False)
        expected = run.experiment_config
    assert estimator.latest_training_job.describe()["ExperimentConfig"] == expected
    frame = ExperimentAnalytics(experiment_name="fitted", sagemaker_session=session).dataframe()
    of_job = frame[frame["TrialComponentName"] == f"{estimator.latest_training_job.name}-aws-training-job"].iloc[0]
    assert of_job["loss - Last"] == 0.5 and of_job["SageMaker.InstanceCount"] == 1
