"""The built-in XGBoost: metrics, model, distribution, mistakes in the data."""

import random

import pytest
import xgboost


def rows(count, seed):
    """Two features decide, one is noise; few distinct values, so that one and three instances cut alike."""
    numbers = random.Random(seed)
    made = []
    for _ in range(count):
        x = [numbers.randint(0, 30) / 10 for _ in range(3)]
        made.append([int(x[0] + x[1] + numbers.gauss(0, 0.4) > 3), *x])
    return made


def csv(rows):
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


TRAIN, VALIDATION = rows(900, 1), rows(300, 2)
PARAMETERS = {"objective": "binary:logistic", "eval_metric": "auc", "num_round": 10, "max_depth": 3}


@pytest.fixture(scope="module", autouse=True)
def data(jobs):
    for part in range(3):
        jobs.put(f"xgb/train/part-{part}.csv", csv(TRAIN[part * 300 : (part + 1) * 300]))
    jobs.put("xgb/validation/all.csv", csv(VALIDATION))


def model(jobs, name, path):
    path.write_bytes(jobs.artifact(name)["xgboost-model"])
    booster = xgboost.Booster()
    booster.load_model(path)
    return booster


def predictions(booster):
    return booster.predict(xgboost.DMatrix([row[1:] for row in VALIDATION]))


def auc(scores):
    positive = [score for score, row in zip(scores, VALIDATION) if row[0]]
    negative = [score for score, row in zip(scores, VALIDATION) if not row[0]]
    wins = sum((p > n) + (p == n) / 2 for p in positive for n in negative)
    return wins / len(positive) / len(negative)


def final(description):
    return {metric["MetricName"]: metric["Value"] for metric in description["FinalMetricDataList"]}


@pytest.fixture(scope="module")
def one(jobs):
    name = jobs.xgboost("xgb/train/", "xgb/validation/", **PARAMETERS)
    return name, jobs.completed(name)


def test_metrics_are_found_without_definitions(jobs, one):
    name, description = one
    assert set(final(description)) == {"train:auc", "validation:auc"}
    assert len([line for line in jobs.lines(name) if line.startswith("[") and "#011train-auc:" in line]) == 10


def test_the_model_opens_and_is_the_one_that_was_measured(jobs, one, tmp_path):
    name, description = one
    assert final(description)["validation:auc"] == pytest.approx(auc(predictions(model(jobs, name, tmp_path / "m.ubj"))), abs=1e-5)


def test_three_instances_train_the_same_model(jobs, one, tmp_path):
    name = jobs.xgboost("xgb/train/", "xgb/validation/", instances=3, sharded=True, **PARAMETERS)
    description = jobs.completed(name)
    assert final(description) == pytest.approx(final(one[1]), abs=1e-5)
    same = predictions(model(jobs, one[0], tmp_path / "one.ubj")) - predictions(model(jobs, name, tmp_path / "three.ubj"))
    assert abs(same).max() <= 1e-6


@pytest.mark.parametrize(
    "text, expected",
    [
        ("1,2,3\n0,1,x\n1,2,3\n", ["bad.csv", "2", "3"]),
        ("1,2,3\n0,1\n", ["bad.csv", "2"]),
    ],
)
def test_a_bad_line_is_told_by_file_line_and_column(jobs, text, expected):
    jobs.put("xgb/bad/bad.csv", text)
    reason = jobs.failed(jobs.xgboost("xgb/bad/", **PARAMETERS))
    assert all(word in reason for word in expected), reason


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"max_dept": 3}, "max_dept"),
        ({"num_round": "many"}, "num_round"),
        ({"eta": 7}, "eta"),
        ({"objective": "foo"}, "objective"),
    ],
)
def test_wrong_hyperparameters_are_named(jobs, changes, expected):
    assert expected in jobs.failed(jobs.xgboost("xgb/train/", **{**PARAMETERS, **changes}))


def test_early_stopping(jobs):
    name = jobs.xgboost("xgb/train/", "xgb/validation/", **{**PARAMETERS, "num_round": 500, "early_stopping_rounds": 3})
    jobs.completed(name)
    assert len([line for line in jobs.lines(name) if line.startswith("[") and "#011" in line]) < 500
