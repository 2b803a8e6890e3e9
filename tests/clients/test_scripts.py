"""`shoal train train.py ARGUMENTS`: a script with its directory from the command line, and what
is told when something is wrong with it.
"""

import io
import tarfile

import pytest
from test_cli import FAILED, NOT_FOUND, USAGE, run

SCRIPT = """
import argparse, os, sys
from lib import greeting
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--rate", type=float, default=0)
parser.add_argument("--kind")
parser.add_argument("--verbose", action="store_true")
parser.add_argument("files", nargs="*")
it = parser.parse_args()
print(greeting, it.epochs, it.rate, it.kind, it.verbose, it.files, sorted(os.listdir()))
print(f"loss: {it.rate}")
"""


@pytest.fixture
def directory(tmp_path):
    for name, text in {
        "train.py": SCRIPT,
        "lib/__init__.py": "greeting = 'hello'\n",
        "big.bin": "x",
        ".gitignore": "*.bin\n",
        "notes.md": "",
        ".shoalignore": "notes.md\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_script_runs_with_its_directory_and_its_arguments(house, jobs, directory):
    flags = ["train", "--name", "script-pairs", "--metric", r"loss=loss: (\S+)"]
    done = run(house, *flags, "train.py", "--epochs", "3", "--rate=0.5", "--kind", "true", cwd=directory)
    assert "image shoal/host, as train.py imports nothing that an environment is for" in done.stderr, done.stderr
    it = jobs.describe("script-pairs")
    given = it["HyperParameters"]
    uri = given.pop("sagemaker_submit_directory")
    assert given == {"epochs": "3", "rate": "0.5", "kind": '"true"', "sagemaker_program": "train.py"}
    bucket, key = uri.removeprefix("s3://").split("/", 1)
    body = jobs.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    names = tarfile.open(fileobj=io.BytesIO(body)).getnames()
    assert names == [".gitignore", ".shoalignore", "lib/__init__.py", "train.py"]
    assert "hello 3 0.5 true False []" in "\n".join(jobs.lines("script-pairs")) and jobs.metrics("script-pairs") == {
        "loss": 0.5
    }

    run(
        house, "train", "--name", "script-words", "train.py", "--verbose", "--epochs", "3", "a file", "b", cwd=directory
    )
    assert "hello 3 0 None True ['a file', 'b']" in "\n".join(jobs.lines("script-words"))
    assert jobs.describe("script-words")["AlgorithmSpecification"]["ContainerArguments"] == [
        "--verbose",
        "--epochs",
        "3",
        "a file",
        "b",
    ]


def test_the_cause_of_a_failure_is_its_headline(house, directory):
    (directory / "train.py").write_text("import os\n\ndef broken(:\n    pass\n")
    done = run(house, "train", "--name", "script-syntax", "train.py", cwd=directory, code=FAILED)
    cause = "AlgorithmError: SyntaxError: invalid syntax (train.py, line 3)"
    assert f"reason   {cause}\n" in done.stdout and cause not in done.stderr, done
    (directory / "train.py").write_text(
        "import sys\nsys.path = [p for p in sys.path if 'packages' not in p]\nimport torch\n"
    )
    done = run(
        house, "train", "--name", "script-module", "--image", "shoal/host", "train.py", cwd=directory, code=FAILED
    )
    hint = "has no torch: the image pytorch-training has it"
    assert "ModuleNotFoundError: No module named 'torch' (train.py, line 3)\n" in done.stdout and hint in done.stdout, (
        done.stdout
    )
    assert hint in run(house, "jobs", "logs", "script-module").stdout
    (directory / "train.py").write_text("open('/opt/ml/input/data/validation/rows.csv')\n")
    done = run(house, "train", "--channel", "train=notes.md", "train.py", cwd=directory, code=FAILED)
    assert "the job has no channel validation" in done.stdout and "it has train: give it" in done.stdout, done.stdout


def test_a_refused_job_leaves_nothing_and_touches_nothing(house, jobs, directory):
    """A second one of the same name."""
    flags = ["train", "--name", "script-twice", "--channel", "train=notes.md"]
    run(house, *flags, "train.py", "--epochs", "1", cwd=directory)
    uri = jobs.describe("script-twice")["HyperParameters"]["sagemaker_submit_directory"]
    bucket, key = uri.removeprefix("s3://").split("/", 1)
    kept = lambda: {
        it["Key"]: it["ETag"] for it in jobs.s3.list_objects_v2(Bucket=bucket, Prefix="script-twice/")["Contents"]
    }
    before = kept()
    assert key in before and any("/input/train/" in key and key.endswith("/notes.md") for key in before), before
    for name in ["train.py", "notes.md"]:
        (directory / name).write_text("print('another')\n")
    refused = run(house, *flags, "train.py", "--epochs", "1", cwd=directory, code=FAILED).stderr
    assert "already exist" in refused and kept() == before, refused


def test_instances_without_a_distribution_are_told(house, jobs, directory):
    (directory / "train.py").write_text("print('alone')\n")
    run(house, "train", "--name", "script-apart", "--instances", "2", "train.py", cwd=directory)
    assert (
        run(house, "jobs", "logs", "script-apart").stdout.count("2 instances run train.py, each all of it by itself")
        == 1
    )


def test_mistakes_are_told_before_anything_is_sent(house, directory):
    for words, said in [
        (["--", "python3", "train.py"], "`shoal train train.py ARGUMENTS` uploads its directory and runs it"),
        (["absent.py"], "there is no script absent.py here"),
        (["--", "python3", "-c", "import os\nprint(1)"], "has several lines"),
        (["train.py", "--prompt", "x" * 2501], "the hyperparameter prompt has 2501 characters"),
        (
            ["--hp", "epochs=1", "train.py", "--epochs", "3"],
            "--hp epochs and the script's argument epochs are the same",
        ),
    ]:
        refused = run(house, "train", *words, cwd=directory, code=USAGE)
        assert said in refused.stderr, refused.stderr
    # Nobody's server is asked.
    done = run(house, "train", "--dry-run", "--name", "dry", "train.py", "--epochs", "3", cwd=directory)
    assert "(4 files, " in done.stderr and '"epochs": "3"' in done.stdout, done
    refused = run(house, "train", "--image", "xgbost", "--channel", "train=train.py", code=FAILED, cwd=directory).stderr
    assert 'The image "xgbost" is none that this server can run; did you mean xgboost?' in refused, refused


def test_a_script_is_tuned_with_its_directory_and_arguments(house, jobs, directory):
    flags = [
        "tune",
        "--name",
        "script-tuned",
        "--metric",
        r"loss=loss: (\S+)",
        "--minimize",
        "loss",
        "--range",
        "rate=0.1..0.5",
        "--trials",
        "3",
    ]
    done = run(house, *flags, "train.py", "--epochs", "3", "--verbose", cwd=directory)
    assert "image shoal/host, as train.py imports nothing" in done.stderr and "3 of 3: 3 completed" in done.stdout, done
    trials = jobs.sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(
        HyperParameterTuningJobName="script-tuned"
    )
    for trial in trials["TrainingJobSummaries"]:
        rate = float(trial["TunedHyperParameters"]["rate"])
        assert trial["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] == pytest.approx(rate)
        assert "hello 3 " in "\n".join(jobs.lines(trial["TrainingJobName"]))


def test_what_a_script_prints_and_what_it_does_not(house, directory):
    (directory / "train.py").write_text("print('starting')\nprint('error: no column price')\nraise SystemExit(1)\n")
    done = run(house, "train", "--name", "script-prints", "train.py", cwd=directory, code=FAILED)
    said = done.stderr + done.stdout
    assert (
        said.count("AlgorithmError: error: no column price") == 1 and "shoal jobs logs script-prints" in done.stdout
    ), said

    (directory / "train.py").write_text("print('epoch 1 loss: 0.25')\n")
    done = run(house, "train", "--name", "script-unseen", "--metric", r"loss=loss=(\S+)", "train.py", cwd=directory)
    assert "the metric loss never appeared" in done.stderr and "came near: 'epoch 1 loss: 0.25'" in done.stderr, (
        done.stderr
    )


def test_names_of_another_kind_and_near_ones_are_told(house, jobs, directory):
    run(house, "train", "--name", "script-named", "train.py", "--epochs", "1", cwd=directory)
    assert "did you mean script-named?" in run(house, "jobs", "show", "script-namde", code=NOT_FOUND).stderr
    assert (
        "script-named is a training job: shoal jobs show script-named"
        in run(house, "tuning", "show", "script-named", code=NOT_FOUND).stderr
    )
