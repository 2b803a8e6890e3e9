"""Estimators of SDK v2 and what goes with them."""

import filecmp
import os

import pytest
import sagemaker
from jobs import ROLE
from sagemaker.analytics import TrainingJobAnalytics
from sagemaker.debugger import ProfilerConfig, ProfilerRule, Rule, rule_configs
from sagemaker.estimator import Estimator
from sagemaker.exceptions import UnexpectedStatusException
from sagemaker.inputs import TrainingInput


@pytest.fixture(scope="module")
def session(environment):
    return sagemaker.Session()


@pytest.fixture
def estimator(session):
    def estimator(command, **options):
        return Estimator(
            image_uri="shoal/host",
            role=options.pop("role", ROLE),
            instance_count=1,
            instance_type="ml.m5.large",
            container_entry_point=["sh", "-c"],
            container_arguments=[command],
            metric_definitions=[{"Name": "loss", "Regex": r"loss: (\S+)"}],
            output_path=f"s3://{session.default_bucket()}/models",
            sagemaker_session=session,
            **options,
        )

    return estimator


def test_who_where_and_a_hundred_megabytes_there_and_back(session, tmp_path):
    assert session.default_bucket() == "sagemaker-us-east-1-123456789012"
    assert session.account_id() == "123456789012"
    assert sagemaker.get_execution_role(session).startswith("arn:aws:iam::123456789012:role/")
    (tmp_path / "up").mkdir()
    (tmp_path / "up/big").write_bytes(os.urandom(100 << 20))
    (tmp_path / "up/small").write_text("small")
    uri = session.upload_data(str(tmp_path / "up"), key_prefix="there")
    assert uri == f"s3://{session.default_bucket()}/there"
    session.download_data(str(tmp_path / "down"), session.default_bucket(), key_prefix="there")
    assert filecmp.cmpfiles(tmp_path / "up", tmp_path / "down", ["big", "small"], shallow=False)[0] == ["big", "small"]
    assert session.read_s3_file(session.default_bucket(), "there/small") == "small"


def test_fit_attach_and_the_metrics_data_frame(estimator, session, capsys):
    fitted = estimator(
        'for i in 4 2 1; do echo "loss: 0.$i"; done; cat /opt/ml/input/config/hyperparameters.json; echo w > /opt/ml/model/w',
        hyperparameters={"depth": 3, "name": "x"},
        tags=[{"Key": "team", "Value": "tests"}],
        environment={"GREETING": "hello"},
    )
    fitted.fit(logs="All")
    said = capsys.readouterr().out
    assert "loss: 0.4" in said and "Training job completed" in said and "Billable seconds" in said, said
    name = fitted.latest_training_job.name
    assert fitted.model_data == f"s3://{session.default_bucket()}/models/{name}/output/model.tar.gz"
    assert fitted.latest_training_job.describe()["TrainingJobStatus"] == "Completed"

    frame = TrainingJobAnalytics(name, ["loss"], sagemaker_session=session).dataframe()
    assert list(frame["metric_name"]) == ["loss"] and list(frame["timestamp"]) == [0.0]
    assert frame["value"][0] == pytest.approx((0.4 + 0.2 + 0.1) / 3)

    attached = Estimator.attach(name, sagemaker_session=session)
    assert attached.model_data == fitted.model_data and attached.hyperparameters() == {"depth": "3", "name": "x"}
    assert attached.tags == [{"Key": "team", "Value": "tests"}] and attached.instance_type == "ml.m5.large"
    logs = session.logs_for_job(name, wait=False)
    assert logs is None and "loss: 0.1" in capsys.readouterr().out


def test_a_failure_is_printed_with_its_reason(estimator, capsys):
    failing = estimator("echo 'the third file is empty' > /opt/ml/output/failure; exit 3")
    with pytest.raises(UnexpectedStatusException) as failure:
        failing.fit(logs="All")
    text = str(failure.value)
    assert "Failed" in text and "AlgorithmError" in text and "the third file is empty" in text, text
    assert failure.value.actual_status == "Failed"
    with pytest.raises(UnexpectedStatusException, match="the third file is empty"):
        failing.latest_training_job.wait(logs=False)


def test_submit_now_and_stop_later(estimator, session, jobs, capsys):
    running = estimator("echo up; exec sleep 60")
    running.fit(wait=False)
    job = running.latest_training_job
    jobs.saying(job.name, "up")
    job.stop()
    job.wait(logs="None")
    assert job.describe()["TrainingJobStatus"] == "Stopped"


def test_spot_debugger_and_profiler_are_accepted(estimator, session, capsys):
    fitted = estimator(
        "true",
        use_spot_instances=True,
        max_run=60,
        max_wait=120,
        rules=[
            Rule.sagemaker(rule_configs.loss_not_decreasing()),
            ProfilerRule.sagemaker(rule_configs.ProfilerReport()),
        ],
        profiler_config=ProfilerConfig(system_monitor_interval_millis=500),
    )
    fitted.fit(logs=False)
    described = fitted.latest_training_job.describe()
    assert described["TrainingJobStatus"] == "Completed" and described["EnableManagedSpotTraining"] is True
    assert described["StoppingCondition"]["MaxWaitTimeInSeconds"] == 120
    assert described["DebugRuleConfigurations"][0]["RuleConfigurationName"] == "LossNotDecreasing"


def test_a_role_may_be_a_short_name(estimator):
    fitted = estimator("true", role="short-name")
    fitted.fit(logs=False)
    assert fitted.latest_training_job.describe()["RoleArn"] == "arn:aws:iam::123456789012:role/short-name"


def test_inputs_of_a_framework_user(estimator, session, tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("1\n2\n")
    train = session.upload_data(str(tmp_path / "rows.csv"), key_prefix="framework/train")
    fitted = estimator("wc -l < /opt/ml/input/data/train/rows.csv; printenv TRAINING_JOB_NAME")
    fitted.fit(
        {"train": TrainingInput(train, content_type="text/csv", input_mode="File")}, logs="All", job_name="my-own-name"
    )
    said = capsys.readouterr().out
    assert "my-own-name" in said and fitted.latest_training_job.name == "my-own-name", said
