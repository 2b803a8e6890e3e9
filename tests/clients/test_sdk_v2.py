"""The SageMaker Python SDK, version 2, unmodified."""

import pathlib
import sys
import tarfile

import xgboost

PROGRAM = pathlib.Path(__file__).with_name("sdk_v2_fit.py")


def test_fit_streams_logs_and_the_model_opens(house, tmp_path):
    (tmp_path / "train.csv").write_text("".join(f"{i % 2},{i % 7},{i % 5}\n" for i in range(200)))
    run = house.shoal("exec", "--", sys.executable, str(PROGRAM), "train.csv", cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stderr
    assert "#011train-logloss:" in run.stdout and "Training job completed" in run.stdout, run.stdout
    assert "Billable seconds" in run.stdout and "amazonaws.com" not in run.stderr, run.stderr
    with tarfile.open(tmp_path / "model.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    booster = xgboost.Booster()
    booster.load_model(tmp_path / "xgboost-model")
    assert booster.num_boosted_rounds() == 5
