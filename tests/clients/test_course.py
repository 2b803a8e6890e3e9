"""Scripts of the kind that courses teach: XGBoost on the Titanic's passengers, tuned by hand, on
one instance and on several together.
"""

import pytest
from data import SHARED
from test_script_mode import create

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:3.0-5"

SCRIPT = """
import argparse, json, os, pickle
import pandas as pd
import xgboost as xgb
from xgboost import collective
from xgboost.tracker import RabitTracker


def features(frame):
    frame = frame.copy()
    frame["Sex"] = (frame["Sex"] == "male").astype(int)
    frame["Age"] = frame["Age"].fillna(frame["Age"].median())
    frame["Embarked"] = frame["Embarked"].map({"C": 0, "Q": 1, "S": 2}).fillna(2)
    return frame[["Pclass", "Sex", "Age", "SibSp", "Parch", "Fare", "Embarked"]], frame["Survived"]


def train(args, part=slice(None)):
    frame = pd.read_csv(os.path.join(args.train, "titanic_train.csv"))
    x, y = features(frame)
    held_x, held_y = features(pd.read_csv(os.path.join(args.test, "titanic_test.csv")))
    matrix, held = xgb.DMatrix(x.iloc[part], y.iloc[part]), xgb.DMatrix(held_x, held_y)
    params = {"objective": "binary:logistic", "eval_metric": ["logloss", "error"], "max_depth": args.max_depth, "eta": args.eta, "subsample": args.subsample}
    return xgb.train(params, matrix, args.num_round, evals=[(matrix, "train"), (held, "test")], verbose_eval=10)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_depth", type=int, default=3)
    parser.add_argument("--eta", type=float, default=0.1)
    parser.add_argument("--subsample", type=float, default=1)
    parser.add_argument("--num_round", type=int, default=50)
    parser.add_argument("--train", default=os.environ["SM_CHANNEL_TRAIN"])
    parser.add_argument("--test", default=os.environ["SM_CHANNEL_TEST"])
    parser.add_argument("--model_dir", default=os.environ["SM_MODEL_DIR"])
    args, _ = parser.parse_known_args()
    hosts, host = json.loads(os.environ["SM_HOSTS"]), os.environ["SM_CURRENT_HOST"]
    if len(hosts) == 1:
        model = train(args)
    else:
        # The first host tracks; each trains on its share of the rows.
        rank, port = hosts.index(host), 9099
        if rank == 0:
            tracker = RabitTracker(len(hosts), host_ip="0.0.0.0", port=port)
            tracker.start()
        with collective.CommunicatorContext(dmlc_tracker_uri=hosts[0], dmlc_tracker_port=port, dmlc_task_id=str(rank)):
            model = train(args, slice(rank, None, len(hosts)))
        if rank == 0:
            tracker.wait_for()
    if host == hosts[0]:
        with open(os.path.join(args.model_dir, "xgboost-model"), "wb") as file:
            pickle.dump(model, file)
"""


@pytest.fixture(scope="module")
def channels(jobs):
    if not (SHARED / "titanic").exists():
        pytest.skip(f"needs ../shared/data (or its parent named in SHOAL_SHARED): there is no {SHARED}/titanic")
    for part in ("train", "test"):
        name = f"titanic_{part}.csv"
        jobs.put(f"titanic/{part}/{name}", (SHARED / "titanic" / name).read_bytes())
    return [jobs.channel(part, f"titanic/{part}") for part in ("train", "test")]


@pytest.mark.parametrize("instances", [1, 2, 4])
def test_titanic(jobs, channels, instances):
    name = create(
        jobs,
        {"train_xgboost.py": SCRIPT},
        program="train_xgboost.py",
        image=IMAGE,
        instances=instances,
        instance_type="ml.t3.medium",
        channels=channels,
        hyperparameters={"max_depth": "4", "eta": "0.2", "num_round": "40"},
        metrics=[("validation:error", r"test-error:(\S+)")],
    )
    jobs.completed(name)
    assert jobs.metrics(name)["validation:error"] < 0.25, jobs.lines(name)
    assert b"learner" in jobs.artifact(name)["xgboost-model"]
