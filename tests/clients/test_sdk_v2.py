"""The SageMaker Python SDK, version 2, unmodified."""

import json
import pathlib
import sys
import tarfile

import data
import pytest
import xgboost

PROGRAM = pathlib.Path(__file__).with_name("sdk_v2_fit.py")


# A model file without an ending is what the image writes, and what xgboost says of it.
@pytest.mark.filterwarnings("ignore:.*Unknown file format")
@pytest.mark.parametrize("version, instances", [("1.7-1", 1), ("3.0-5", 2)])
def test_fit_streams_logs_and_the_model_opens(house, jobs, tmp_path, version, instances):
    (tmp_path / "train").mkdir()
    for part in range(instances):
        (tmp_path / f"train/{part}.csv").write_text(data.as_csv(data.rows(200, part)))
    run = house.shoal(
        "exec", "--", sys.executable, str(PROGRAM), version, str(instances), "train", cwd=tmp_path, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "#011train-logloss:" in run.stdout and "Training job completed" in run.stdout, run.stdout
    assert "Billable seconds" in run.stdout and "amazonaws.com" not in run.stderr, run.stderr
    answer = json.loads(run.stdout.splitlines()[-1])
    print(f"fit() took {answer['seconds']:.1f} s")
    assert answer["role"].startswith("arn:aws:iam::123456789012:role/")
    assert answer["bucket"] == "sagemaker-us-east-1-123456789012"
    assert jobs.describe(answer["job"])["ResourceConfig"]["InstanceCount"] == instances
    with tarfile.open(tmp_path / "model.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    booster = xgboost.Booster()
    booster.load_model(tmp_path / "xgboost-model")
    assert booster.num_boosted_rounds() == 5
