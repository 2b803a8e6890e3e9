"""The user's mistakes with the built-in XGBoost: where they are, and what the image's own
messages call them.
"""

import data
import pytest
from botocore.exceptions import ClientError

PARAMETERS = {"objective": "binary:logistic", "num_round": 2}


@pytest.fixture(scope="module", autouse=True)
def channels(jobs):
    jobs.put("mistakes/good/train.csv", data.as_csv(data.rows(30, 3)))


@pytest.mark.parametrize(
    "text, place",
    [
        ("1,2,3\n0,1,x\n1,2,3\n", "bad.csv, line 2, column 3"),
        ("1,2,3\n0,1\n", "bad.csv, line 2"),
        ("label,a,b\n1,2,3\n", "bad.csv, line 1, column 1"),
        ("1,2,3\n,2,3\n", "bad.csv, line 2, column 1"),
    ],
)
def test_a_bad_csv_line(jobs, text, place):
    jobs.put("mistakes/csv/bad.csv", text)
    reason = jobs.failed(jobs.xgboost("mistakes/csv/", **PARAMETERS))
    assert reason.startswith("AlgorithmError") and place in reason, reason


@pytest.mark.parametrize(
    "text, place", [("1 0:1 1:2\n0 0:x\n", "bad.libsvm, line 2"), ("1 0:1\n0 nonsense\n", "bad.libsvm, line 2")]
)
def test_a_bad_libsvm_line(jobs, text, place):
    jobs.put("mistakes/libsvm/bad.libsvm", text)
    reason = jobs.failed(jobs.xgboost("mistakes/libsvm/", content_type="text/libsvm", **PARAMETERS))
    assert place in reason, reason


def test_of_three_instances_the_one_with_the_bad_line_is_named(jobs):
    for part, text in enumerate(["1,2\n0,3\n", "1,2\n0,3\n", "1,2\n0,3,4,5\n"]):
        jobs.put(f"mistakes/three/{part}.csv", text)
    reason = jobs.failed(jobs.xgboost("mistakes/three/", instances=3, sharded=True, **PARAMETERS))
    assert "algo-3" in reason and "2.csv, line 2" in reason, reason


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"num_round": "many"}, "num_round"),
        ({"eta": 7}, "eta"),
        ({"objective": "foo"}, "objective"),
        ({"objective": "multi:softmax"}, "num_class"),
        ({"eval_metric": "nonsense"}, "nonsense"),
    ],
)
def test_wrong_hyperparameters_are_named(jobs, changes, expected):
    reason = jobs.failed(jobs.xgboost("mistakes/good/", **{**PARAMETERS, **changes}))
    assert expected in reason, reason


def test_an_unknown_hyperparameter_is_refused_with_the_one_that_was_meant(jobs):
    with pytest.raises(ClientError) as refused:
        jobs.xgboost("mistakes/good/", **PARAMETERS, max_dept=3)
    error = refused.value.response["Error"]
    assert error["Code"] == "ValidationException", error
    assert "Extraneous hyperparameter found: max_dept; did you mean max_depth?" in error["Message"], error


def test_a_missing_hyperparameter(jobs):
    assert "num_round" in jobs.failed(jobs.xgboost("mistakes/good/", objective="binary:logistic"))


def test_a_channel_that_xgboost_does_not_know(jobs):
    request = jobs.request(
        "channel",
        InputDataConfig=[jobs.channel(name, "mistakes/good/", content_type="text/csv") for name in ("train", "extra")],
    )
    algorithm = {"TrainingImage": "xgboost", "TrainingInputMode": "File"}
    jobs.sagemaker.create_training_job(**request, AlgorithmSpecification=algorithm, HyperParameters={"num_round": "1"})
    assert "extra" in jobs.failed(request["TrainingJobName"])


def test_labels_that_do_not_fit_the_objective(jobs):
    jobs.put("mistakes/labels/train.csv", "1,2\n7,3\n")
    assert "label" in jobs.failed(jobs.xgboost("mistakes/labels/", **PARAMETERS)).lower()
