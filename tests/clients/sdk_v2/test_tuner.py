"""HyperparameterTuner of SDK v2 and what goes with it, over the built-in algorithm and a program
of the user's.
"""

import data
import pytest
import sagemaker
from jobs import ROLE, XGBOOST
from sagemaker.estimator import Estimator
from sagemaker.inputs import TrainingInput
from sagemaker.parameter import CategoricalParameter, ContinuousParameter, IntegerParameter
from sagemaker.tuner import (
    HyperparameterTuner,
    StrategyConfig,
    HyperbandStrategyConfig,
    WarmStartConfig,
    WarmStartTypes,
)
from tuning_jobs import BOWL

RANGES = {
    "eta": ContinuousParameter(0.05, 0.9, scaling_type="Logarithmic"),
    "max_depth": IntegerParameter(1, 5),
    "booster": CategoricalParameter(["gbtree", "dart"]),
}


@pytest.fixture(scope="module")
def session(environment):
    return sagemaker.Session()


@pytest.fixture(scope="module")
def inputs(session, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuner")
    made = {}
    for name, rows in (("train", data.rows(500, 1)), ("validation", data.rows(300, 2))):
        (folder / f"{name}.csv").write_text(data.as_csv(rows))
        uri = session.upload_data(str(folder / f"{name}.csv"), key_prefix=f"tuner/{name}")
        made[name] = TrainingInput(uri, content_type="text/csv")
    return made


def trees(session, **more):
    return Estimator(
        image_uri=XGBOOST,
        role=ROLE,
        instance_count=1,
        instance_type="ml.m5.large",
        output_path=f"s3://{session.default_bucket()}/tuned",
        sagemaker_session=session,
        hyperparameters={"objective": "binary:logistic", "num_round": 6, **more},
    )


def tuner(estimator, jobs=4, **options):
    return HyperparameterTuner(
        estimator,
        "validation:auc",
        options.pop("ranges", RANGES),
        objective_type="Maximize",
        max_jobs=jobs,
        max_parallel_jobs=2,
        base_tuning_job_name="v2",
        **options,
    )


@pytest.fixture(scope="module")
def fitted(session, inputs):
    tuned = tuner(trees(session), random_seed=7)
    tuned.fit(inputs, wait=True)
    return tuned


def test_fit_waits_and_finds_the_best(fitted, session):
    told = fitted.describe()
    assert told["HyperParameterTuningJobStatus"] == "Completed" and told["TrainingJobStatusCounters"]["Completed"] == 4
    frame = fitted.analytics().dataframe()
    assert len(frame) == 4 and {"eta", "max_depth", "booster", "FinalObjectiveValue", "TrainingJobName"} <= set(
        frame.columns
    )
    best = fitted.best_training_job()
    assert frame.set_index("TrainingJobName")["FinalObjectiveValue"].idxmax() == best
    assert fitted.analytics().tuning_ranges["max_depth"]["MaxValue"] == "5"
    estimator = fitted.best_estimator()
    assert estimator.latest_training_job.name == best and estimator.model_data.endswith("model.tar.gz")
    assert float(estimator.hyperparameters()["eta"]) == pytest.approx(
        float(frame.set_index("TrainingJobName")["eta"][best])
    )


def test_attach_gives_the_tuner_back(fitted, session):
    attached = HyperparameterTuner.attach(fitted.latest_tuning_job.name, sagemaker_session=session)
    assert attached.objective_metric_name == "validation:auc" and attached.max_jobs == 4
    assert attached.hyperparameter_ranges().keys() == fitted.hyperparameter_ranges().keys()
    assert attached.best_training_job() == fitted.best_training_job()


def test_warm_starts(fitted, session, inputs):
    identical = fitted.identical_dataset_and_algorithm_tuner()
    identical.fit(inputs, job_name="v2-identical", wait=True)
    overall = identical.describe()["OverallBestTrainingJob"]
    assert overall["TuningJobName"] in (fitted.latest_tuning_job.name, identical.latest_tuning_job.name)
    transfer = tuner(
        trees(session),
        jobs=2,
        warm_start_config=WarmStartConfig(WarmStartTypes.TRANSFER_LEARNING, parents={fitted.latest_tuning_job.name}),
        ranges={**RANGES, "max_depth": IntegerParameter(2, 8)},
    )
    transfer.fit(inputs, job_name="v2-transfer", wait=True)
    assert transfer.describe()["TrainingJobStatusCounters"]["Completed"] == 2


def test_stop(session, inputs):
    stopped = tuner(trees(session, num_round=100000), jobs=2)
    stopped.fit(inputs, job_name="v2-stopped", wait=False)
    stopped.stop_tuning_job()
    stopped.wait()
    assert stopped.describe()["HyperParameterTuningJobStatus"] == "Stopped"


def test_several_estimators(session, inputs):
    names = ["shallow", "deep"]
    both = HyperparameterTuner.create(
        estimator_dict={name: trees(session) for name in names},
        objective_metric_name_dict={name: "validation:auc" for name in names},
        hyperparameter_ranges_dict={
            "shallow": {"max_depth": IntegerParameter(1, 2)},
            "deep": {"max_depth": IntegerParameter(3, 6)},
        },
        objective_type="Maximize",
        max_jobs=4,
        max_parallel_jobs=2,
        base_tuning_job_name="both",
    )
    both.fit({name: inputs for name in names}, include_cls_metadata={}, wait=True)
    summaries = both.analytics().training_job_summaries()
    assert {it["TrainingJobDefinitionName"] for it in summaries} == set(names)
    assert both.best_training_job() in {it["TrainingJobName"] for it in summaries}


def test_a_program_of_the_user_s_with_hyperband(session, tmp_path):
    (tmp_path / "train.py").write_text(BOWL)
    estimator = Estimator(
        image_uri="shoal/host",
        role=ROLE,
        instance_count=1,
        instance_type="ml.t3.medium",
        entry_point="train.py",
        source_dir=str(tmp_path),
        sagemaker_session=session,
        hyperparameters={"epochs": 9, "pause": 0.02},
    )
    tuned = HyperparameterTuner(
        estimator,
        "loss",
        {"x": ContinuousParameter(0, 1)},
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+);"}],
        objective_type="Minimize",
        strategy="Hyperband",
        strategy_config=StrategyConfig(HyperbandStrategyConfig(min_resource=1, max_resource=9)),
        max_jobs=6,
        max_parallel_jobs=2,
        base_tuning_job_name="bowl",
    )
    tuned.fit(wait=True)
    frame = tuned.analytics().dataframe()
    assert len(frame) == 6 and frame["FinalObjectiveValue"].min() < 0.5
