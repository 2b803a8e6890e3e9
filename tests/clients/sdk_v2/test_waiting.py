"""Whatever waits in SDK v2 looks often enough to return soon after the job's end."""

import pytest
import sagemaker
from jobs import ROLE
from sagemaker.estimator import Estimator
from sagemaker.parameter import ContinuousParameter
from sagemaker.tuner import HyperparameterTuner


@pytest.fixture
def session(environment):
    return sagemaker.Session()


@pytest.fixture
def estimator(session):
    return Estimator(
        image_uri="shoal/host",
        role=ROLE,
        instance_count=1,
        instance_type="ml.m5.large",
        container_entry_point=["sh", "-c"],
        container_arguments=["echo 'loss: 0.5'; sleep 2"],
        output_path=f"s3://{session.default_bucket()}/models",
        sagemaker_session=session,
    )


@pytest.mark.parametrize("logs", ["All", "None"])
def test_fit(estimator, turns, logs):
    estimator.fit(logs=logs)
    turns.check()


def test_logs(estimator, session, turns, capsys):
    estimator.fit(wait=False)
    session.logs_for_job(estimator.latest_training_job.name, wait=True)
    turns.check()
    assert "loss: 0.5" in capsys.readouterr().out


def test_the_tuners_wait(session, turns, tmp_path):
    (tmp_path / "train.py").write_text("import time\nprint('loss: 0.5', flush=True)\ntime.sleep(2)\n")
    script = Estimator(
        image_uri="shoal/host",
        role=ROLE,
        instance_count=1,
        instance_type="ml.m5.large",
        entry_point="train.py",
        source_dir=str(tmp_path),
        sagemaker_session=session,
    )
    tuner = HyperparameterTuner(
        script,
        "loss",
        {"x": ContinuousParameter(0, 1)},
        metric_definitions=[{"Name": "loss", "Regex": r"loss: (\S+)"}],
        objective_type="Minimize",
        max_jobs=1,
        max_parallel_jobs=1,
        base_tuning_job_name="waits",
    )
    tuner.fit()
    turns.check()


def test_a_pace_that_is_asked_for_is_kept(estimator, session, turns):
    estimator.fit(wait=False)
    session.wait_for_job(estimator.latest_training_job.name, poll=3)
    assert 3 in turns.done and 0.25 not in turns.done
