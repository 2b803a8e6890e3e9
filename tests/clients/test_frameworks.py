"""Estimators of frameworks of the SageMaker Python SDK, version 2, unmodified: the user's script in the environment of the framework's image."""

import json
import pathlib
import sys
import tarfile

import data
import pytest
from test_script_mode import create

PROGRAM = pathlib.Path(__file__).with_name("sdk_v2_frameworks.py")

BEGINNING = """
import argparse, os, json
import pandas
import tabulate
parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int)
parser.add_argument("--flag")
parser.add_argument("--model-dir", default=os.environ["SM_MODEL_DIR"])
parser.add_argument("--train", default=os.environ["SM_CHANNEL_TRAIN"])
arguments = parser.parse_args()
assert arguments.flag == "True"
frame = pandas.read_csv(os.path.join(arguments.train, "train.csv"), header=None)
label, features = frame[0], frame.drop(columns=0)
"""

SCRIPTS = {
    "sklearn": """
import joblib, sklearn
from sklearn.ensemble import RandomForestClassifier
model = RandomForestClassifier(n_estimators=arguments.rounds, random_state=0).fit(features, label)
print(f"version {sklearn.__version__} accuracy {model.score(features, label):.3f}")
joblib.dump(model, os.path.join(arguments.model_dir, "model.joblib"))
""",
    "xgboost": """
import xgboost
model = xgboost.XGBClassifier(n_estimators=arguments.rounds).fit(features, label)
print(f"version {xgboost.__version__} accuracy {model.score(features, label):.3f}")
model.save_model(os.path.join(arguments.model_dir, "model.json"))
""",
}


@pytest.mark.parametrize("kind, version, has, model", [("sklearn", "1.2-1", "1.2.2", "model.joblib"), ("xgboost", "1.7-1", "3.0.5", "model.json")])
def test_fit_runs_the_script_and_leaves_its_model(house, jobs, tmp_path, kind, version, has, model):
    for name, text in [
        ("source/train.py", BEGINNING + SCRIPTS[kind]),
        ("source/requirements.txt", "tabulate==0.9.0\n"),
        ("data/train.csv", data.as_csv(data.rows(300, 0))),
    ]:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    run = house.shoal("exec", "--", sys.executable, str(PROGRAM), kind, version, "source", "data", cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stderr
    assert f"version {has} accuracy " in run.stdout and "Training job completed" in run.stdout, run.stdout
    answer = json.loads(run.stdout.splitlines()[-1])
    is_another = not has.startswith(version.split("-")[0])
    assert any("asks for version" in line for line in jobs.logs(answer["job"])["algo-1"]) == is_another
    with tarfile.open(tmp_path / "model.tar.gz") as tar:
        assert model in [member.name.removeprefix("./") for member in tar]


FOREST = """
import glob, joblib, os, pandas
from sklearn.ensemble import RandomForestClassifier
[path] = glob.glob(os.path.join(os.environ["SM_CHANNEL_TRAIN"], "*.csv"))
frame = pandas.read_csv(path, header=None)
model = RandomForestClassifier(n_estimators=10, random_state=0).fit(frame.drop(columns=0), frame[0])
host = os.environ["SM_CURRENT_HOST"]
print(f"{host} has {len(model.estimators_)} trees of {len(frame)} rows")
joblib.dump(model, os.path.join(os.environ["SM_MODEL_DIR"], f"{host}.joblib"))
"""


@pytest.mark.parametrize("instances", [2, 4])
def test_scikit_learn_on_instances_that_have_each_a_share_of_the_rows(jobs, instances):
    for part in range(instances):
        jobs.put(f"forests-{instances}/{part}.csv", data.as_csv(data.rows(100 + part, part)))
    name = create(
        jobs,
        {"train.py": FOREST},
        image="sagemaker-scikit-learn:1.2-1-cpu-py3",
        instances=instances,
        instance_type="ml.t3.medium",
        channels=[jobs.channel("train", f"forests-{instances}", distribution="ShardedByS3Key")],
    )
    jobs.completed(name)
    numbers = range(1, instances + 1)
    for number in numbers:
        assert jobs.lines(name, f"algo-{number}") == [f"algo-{number} has 10 trees of {99 + number} rows"]
    assert set(jobs.artifact(name)) == {f"algo-{number}.joblib" for number in numbers}
