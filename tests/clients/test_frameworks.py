"""Estimators of frameworks of the SageMaker Python SDK, version 2, unmodified: the user's script
in the environment of the framework's image.
"""

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
import sagemaker_containers, xgboost
from sagemaker_training import environment
from sagemaker_xgboost_container.data_utils import get_dmatrix
env = sagemaker_containers.training_env()
assert env.hyperparameters["rounds"] == arguments.rounds and environment.Environment().channel_input_dirs["train"] == arguments.train
matrix = get_dmatrix(arguments.train, "text/csv")
evals = [(matrix, "train"), (matrix, "validation")]
model = xgboost.train({"objective": "binary:logistic", "eval_metric": "auc"}, matrix, arguments.rounds, evals=evals)
print(f"version {xgboost.__version__} accuracy {((model.predict(matrix) > 0.5) == label).mean():.3f}")
model.save_model(os.path.join(arguments.model_dir, "model.json"))
""",
}


@pytest.mark.parametrize(
    "kind, version, has, model",
    [("sklearn", "1.2-1", "1.2.2", "model.joblib"), ("xgboost", "1.5-1", "1.5.2", "model.json")],
)
def test_fit_runs_the_script_and_leaves_its_model(house, jobs, tmp_path, kind, version, has, model):
    for name, text in [
        ("source/train.py", BEGINNING + SCRIPTS[kind]),
        ("source/requirements.txt", "tabulate==0.9.0\n"),
        ("data/train.csv", data.as_csv(data.rows(300, 0))),
    ]:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    run = house.shoal(
        "exec", "--", sys.executable, str(PROGRAM), kind, version, "source", "data", cwd=tmp_path, check=False
    )
    assert run.returncode == 0, run.stderr
    assert f"version {has} accuracy " in run.stdout and "Training job completed" in run.stdout, run.stdout
    answer = json.loads(run.stdout.splitlines()[-1])
    lines = jobs.logs(answer["job"])["algo-1"]
    package = {"sklearn": "scikit-learn", "xgboost": "xgboost"}[kind]
    assert any(line.endswith(f"has {package} {has}") for line in lines) and not any(
        "asks for version" in line for line in lines
    )
    steps = jobs.describe(answer["job"])["SecondaryStatusTransitions"]
    assert any(step["StatusMessage"].endswith(f"has {package} {has}") for step in steps), steps
    metrics = [metric["MetricName"] for metric in jobs.describe(answer["job"]).get("FinalMetricDataList", [])]
    assert sorted(metrics) == (["train:auc", "validation:auc"] if kind == "xgboost" else [])
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


RING = """
import json, os, xgboost
from sagemaker_containers import entry_point
from sagemaker_xgboost_container import checkpointing, distributed
from sagemaker_xgboost_container.data_utils import get_dmatrix
hosts, host = json.loads(os.environ["SM_HOSTS"]), os.environ["SM_CURRENT_HOST"]
matrix = get_dmatrix(os.environ["SM_CHANNEL_TRAIN"], "csv") if host != "algo-3" else None

def train(params, is_master):
    arguments = {"params": params, "dtrain": matrix, "num_boost_round": 5, "verbose_eval": False}
    model = checkpointing.train(arguments, "/opt/ml/checkpoints")
    print(f"{host} of {matrix.num_row()} rows has {hash(''.join(model.get_dump())) % 10**6}")
    if is_master:
        model.save_model("/opt/ml/model/model.json")

entry_point._wait_hostname_resolution()
arguments = {"params": {"objective": "binary:logistic", "tree_method": "hist"}}
distributed.rabit_run(train, arguments, matrix is not None, hosts, host, update_rabit_args=True)
"""


def test_xgboost_in_a_ring_of_the_instances_that_have_data(jobs):
    for part in range(3):
        jobs.put(f"ring/{part}.csv", data.as_csv(data.rows(100 + part, part)))
    channel = jobs.channel("train", "ring", distribution="ShardedByS3Key")
    environment = {"PYTHONHASHSEED": "0"}
    files = {"train.py": RING}
    name = create(
        jobs,
        files,
        image="sagemaker-xgboost:1.5-1",
        instances=3,
        instance_type="ml.t3.medium",
        channels=[channel],
        Environment=environment,
    )
    jobs.completed(name)
    said = [[line for line in jobs.lines(name, f"algo-{number}") if " rows has " in line] for number in (1, 2, 3)]
    assert [line.split(" rows")[0] for lines in said for line in lines] == ["algo-1 of 100", "algo-2 of 101"]
    models = {line.rsplit(" ", 1)[1] for lines in said for line in lines}
    assert len(models) == 1 and list(jobs.artifact(name)) == ["model.json"], said
