"""The built-in XGBoost on one and on three instances: metrics, model, data formats."""

import data
import pytest
import xgboost

TRAIN, VALIDATION = data.rows(900, 1), data.rows(300, 2)
PARAMETERS = {"objective": "binary:logistic", "eval_metric": "auc", "num_round": 10, "max_depth": 3}


@pytest.fixture(scope="module", autouse=True)
def channels(jobs):
    for part in range(3):
        jobs.put(f"xgb/train/part-{part}.csv", data.as_csv(TRAIN[part * 300 : (part + 1) * 300]))
    jobs.put("xgb/validation/all.csv", data.as_csv(VALIDATION))


def predictions(jobs, name, path, rows=VALIDATION):
    """What the job's model says of these rows."""
    path.write_bytes(jobs.artifact(name)["xgboost-model"])
    booster = xgboost.Booster()
    booster.load_model(path)
    return booster.predict(xgboost.DMatrix([row[1:] for row in rows]))


def metric_lines(jobs, name):
    return [line for line in jobs.lines(name) if line.startswith("[") and "#011" in line]


@pytest.fixture(scope="module")
def one(jobs):
    name = jobs.xgboost("xgb/train/", "xgb/validation/", **PARAMETERS)
    jobs.completed(name)
    return name


def test_metrics_are_found_without_definitions(jobs, one):
    assert set(jobs.metrics(one)) == {"train:auc", "validation:auc"}
    lines = metric_lines(jobs, one)
    assert [line.split("#011")[0] for line in lines] == [f"[{i}]" for i in range(10)]
    assert all("#011train-auc:" in line and "#011validation-auc:" in line for line in lines)


def test_the_model_opens_and_is_the_one_that_was_measured(jobs, one, tmp_path):
    measured = data.auc(VALIDATION, predictions(jobs, one, tmp_path / "m.ubj"))
    assert jobs.metrics(one)["validation:auc"] == pytest.approx(measured, abs=1e-5)


def test_three_instances_train_the_same_model(jobs, one, tmp_path):
    name = jobs.xgboost("xgb/train/", "xgb/validation/", instances=3, sharded=True, **PARAMETERS)
    jobs.completed(name)
    assert jobs.metrics(name) == pytest.approx(jobs.metrics(one), abs=1e-5)
    assert len(metric_lines(jobs, name)) == 10
    difference = predictions(jobs, one, tmp_path / "one.ubj") - predictions(jobs, name, tmp_path / "three.ubj")
    assert abs(difference).max() <= 1e-6
    (member,) = jobs.artifact(name)
    assert member == "xgboost-model"


def test_replicated_data_count_once_per_instance(jobs, one, tmp_path):
    """As with SageMaker, every instance trains on all that it is given: each row three times,
    which moves AUC of no row.
    """
    name = jobs.xgboost("xgb/train/", "xgb/validation/", instances=3, **PARAMETERS)
    jobs.completed(name)
    assert any("Train matrix has 900 rows" in line for line in jobs.lines(name, "algo-3"))
    measured = data.auc(VALIDATION, predictions(jobs, name, tmp_path / "m.ubj"))
    assert jobs.metrics(name)["validation:auc"] == pytest.approx(measured, abs=1e-5)


def test_an_instance_without_data_is_left_out(jobs, tmp_path):
    name = jobs.xgboost("xgb/train/", instances=4, sharded=True, **PARAMETERS)
    jobs.completed(name)
    assert data.auc(VALIDATION, predictions(jobs, name, tmp_path / "m.ubj")) > 0.9


def test_exact_on_two_instances_is_approx(jobs):
    """As AWS's image: a warning, and a model."""
    name = jobs.xgboost("xgb/train/", "xgb/validation/", instances=2, sharded=True, tree_method="exact", **PARAMETERS)
    jobs.completed(name)
    assert any(
        "tree_method exact needs all rows on one instance: training with tree_method approx" in line
        for line in jobs.lines(name)
    )
    assert jobs.metrics(name)["validation:auc"] > 0.5
    assert jobs.artifact(name)["xgboost-model"]


def test_libsvm(jobs, one, tmp_path):
    jobs.put("xgb/libsvm/train/a", data.as_libsvm(TRAIN))
    jobs.put("xgb/libsvm/validation/b", data.as_libsvm(VALIDATION))
    name = jobs.xgboost("xgb/libsvm/train/", "xgb/libsvm/validation/", content_type="text/libsvm", **PARAMETERS)
    jobs.completed(name)
    assert jobs.metrics(name) == pytest.approx(jobs.metrics(one), abs=1e-5)
    difference = predictions(jobs, one, tmp_path / "csv.ubj") - predictions(jobs, name, tmp_path / "libsvm.ubj")
    assert abs(difference).max() <= 1e-6


def test_early_stopping(jobs, tmp_path):
    name = jobs.xgboost(
        "xgb/train/", "xgb/validation/", **{**PARAMETERS, "num_round": 500, "eta": 1, "early_stopping_rounds": 3}
    )
    jobs.completed(name)
    lines = metric_lines(jobs, name)
    values = [float(line.rsplit(":", 1)[1]) for line in lines]
    assert len(values) < 500
    assert len(values) - 1 - values.index(max(values)) == 3, values


@pytest.mark.parametrize(
    "image",
    [
        "811284229777.dkr.ecr.us-east-1.amazonaws.com/xgboost:1",
        "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:0.90-2-cpu-py3",
        "246618743249.dkr.ecr.us-west-2.amazonaws.com/sagemaker-xgboost:3.0-5",
        "xgboost",
    ],
)
def test_images_of_all_times_are_this_one(jobs, image):
    name = jobs.xgboost("xgb/train/part-0.csv", image=image, objective="reg:linear", num_round=2)
    jobs.completed(name)
    assert "train:rmse" in jobs.metrics(name)


@pytest.mark.parametrize("instances", [pytest.param(2, marks=pytest.mark.targets), 3])
def test_real_data_on_several_instances(jobs, tmp_path, instances):
    """The Titanic course: the same model to the last bit of what it predicts, and a much better
    one than saying that nobody lives.
    """
    train, test = data.titanic("train"), data.titanic("test")
    for part in range(instances):
        jobs.put(f"xgb/titanic/{instances}/{part}.csv", data.as_csv(train[part::instances]))
    jobs.put("xgb/titanic/validation/test.csv", data.as_csv(test))
    parameters = {
        "objective": "binary:logistic",
        "num_round": 50,
        "max_depth": 5,
        "eta": 0.1,
        "eval_metric": "auc,error",
        "max_bin": 512,
    }
    names = [
        jobs.xgboost(f"xgb/titanic/{instances}/", "xgb/titanic/validation/", **parameters),
        jobs.xgboost(
            f"xgb/titanic/{instances}/", "xgb/titanic/validation/", instances=instances, sharded=True, **parameters
        ),
    ]
    for name in names:
        jobs.completed(name)
    one, several = (predictions(jobs, name, tmp_path / f"{name}.ubj", test) for name in names)
    assert abs(one - several).max() <= 1e-6
    survived = sum(row[0] for row in test) / len(test)
    for name, scores in zip(names, (one, several)):
        assert jobs.metrics(name)["validation:auc"] == pytest.approx(data.auc(test, scores), abs=1e-5)
        assert jobs.metrics(name)["validation:error"] < 0.7 * survived
