"""Script mode: the user's own script, as SageMaker's framework images start it."""

import gzip
import io
import json
import os
import tarfile

import pytest
from house import BUCKET

HOST = "shoal/host"


def sourcedir(jobs, files):
    """Uploads a sourcedir.tar.gz as SDK v2 does; gives its URI."""
    packed = io.BytesIO()
    # Without a time, so that the same files are the same bytes.
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as tar,
    ):
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    content = packed.getvalue()
    return jobs.put(f"source/{hash(content) & 0xFFFFFFFFFFFF:x}/source/sourcedir.tar.gz", content)


def create(
    jobs,
    files,
    program="train.py",
    instances=1,
    channels=(),
    encode=json.dumps,
    hyperparameters=None,
    image=HOST,
    metrics=(),
    instance_type="ml.m5.large",
    **changes,
):
    """Creates a job that brings a script, in the words of SDK v2 (JSON) or v3 (plain,
    `encode=str`); gives its name.
    """
    uri = sourcedir(jobs, files)
    given = {"sagemaker_program": encode(program), "sagemaker_submit_directory": encode(uri), **(hyperparameters or {})}
    definitions = [{"Name": name, "Regex": regex} for name, regex in metrics]
    algorithm = {"TrainingImage": image, "TrainingInputMode": "File", "MetricDefinitions": definitions}
    request = jobs.request("script-mode", AlgorithmSpecification=algorithm, HyperParameters=given, **changes)
    if channels:
        request["InputDataConfig"] = list(channels)
    if "InstanceGroups" not in request["ResourceConfig"]:
        request["ResourceConfig"] = {
            **request["ResourceConfig"],
            "InstanceCount": instances,
            "InstanceType": instance_type,
        }
    jobs.sagemaker.create_training_job(**request)
    return request["TrainingJobName"]


TRAIN = """
import argparse, json, os, sys
import helper
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--learning-rate", type=float)
parser.add_argument("--name")
parser.add_argument("--flag")
parser.add_argument("--model-dir", default=os.environ["SM_MODEL_DIR"])
parser.add_argument("--train", default=os.environ["SM_CHANNEL_TRAIN"])
arguments = parser.parse_args()
rows = open(os.path.join(arguments.train, "rows.csv")).read().split()
for epoch in range(arguments.epochs):
    print(f"epoch {epoch} loss={helper.loss(epoch)};")
host = os.environ["SM_CURRENT_HOST"]
seen = {**vars(arguments), "rows": len(rows), "hosts": json.loads(os.environ["SM_HOSTS"]), "is_there": os.path.samefile(".", "/opt/ml/code"), "user": os.getuid()}
with open(os.path.join(arguments.model_dir, f"{host}.json"), "w") as file:
    json.dump(seen, file)
"""
HELPER = "def loss(epoch):\n    return 1 / (epoch + 1)\n"


@pytest.mark.targets
def test_a_script_runs_on_each_instance_with_its_arguments_and_variables(jobs):
    jobs.put("script-mode/rows.csv", "1\n2\n3\n")
    name = create(
        jobs,
        {"train.py": TRAIN, "helper.py": HELPER},
        instances=2,
        channels=[jobs.channel("train", "script-mode")],
        hyperparameters={"epochs": "3", "learning-rate": "1e-05", "name": '"a b"', "flag": "true"},
    )
    jobs.completed(name)
    model = {name: json.loads(text) for name, text in jobs.artifact(name).items()}
    assert set(model) == {"algo-1.json", "algo-2.json"}
    for seen in model.values():
        assert (seen["epochs"], seen["learning_rate"], seen["name"], seen["flag"]) == (3, 1e-05, "a b", "True")
        assert (seen["rows"], seen["hosts"], seen["is_there"]) == (3, ["algo-1", "algo-2"], True)
        # A pod has its image's user.
        assert seen["user"] != 0 or os.environ.get("SHOAL_TEST_TARGET") == "kubernetes"
    assert "epoch 2 loss=0.3333333333333333;" in jobs.lines(name, "algo-2")
    said = [line for line in jobs.logs(name)["algo-1"] if "Invoking script" in line]
    assert said[0].endswith("python3 train.py --epochs 3 --flag True --learning-rate 1e-05 --name a b")


def test_a_script_is_named_by_plain_hyperparameters_or_by_variables(jobs):
    files = {"train.py": "import os; print('program', os.environ['SM_USER_ENTRY_POINT'], os.environ['SM_MODULE_DIR'])"}
    plain = create(jobs, files, encode=str)
    uri = sourcedir(jobs, files)
    request = jobs.request(
        "variables",
        AlgorithmSpecification={"TrainingImage": HOST, "TrainingInputMode": "File"},
        Environment={"SAGEMAKER_PROGRAM": "train.py", "SAGEMAKER_SUBMIT_DIRECTORY": uri},
    )
    jobs.sagemaker.create_training_job(**request)
    for name in (plain, request["TrainingJobName"]):
        jobs.completed(name)
        assert jobs.lines(name) == [f"program train.py {uri}"]


def test_a_script_may_come_through_a_channel(jobs):
    jobs.put("in-a-channel/train.py", "import lib.model; print('from the channel', lib.model.X)")
    jobs.put("in-a-channel/lib/model.py", "X = 7")
    request = jobs.request(
        "by-channel",
        AlgorithmSpecification={"TrainingImage": HOST, "TrainingInputMode": "File"},
        HyperParameters={"sagemaker_program": "train.py", "sagemaker_submit_directory": "/opt/ml/input/data/code"},
        InputDataConfig=[jobs.channel("code", "in-a-channel")],
    )
    jobs.sagemaker.create_training_job(**request)
    jobs.completed(request["TrainingJobName"])
    assert jobs.lines(request["TrainingJobName"]) == ["from the channel 7"]


def test_a_shell_script(jobs):
    name = create(jobs, {"run.sh": 'echo "$0 $# $1=$2"\n'}, program="run.sh", hyperparameters={"name": '"a b"'})
    jobs.completed(name)
    assert jobs.lines(name) == ["./run.sh 2 --name=a b"]


RAISES = """
import sys
def train():
    raise ValueError("no column 'price'")
print("a warning", file=sys.stderr)
train()
"""


def test_a_script_that_raises_fails_as_with_sagemakers_toolkit(jobs):
    reason = jobs.failed(create(jobs, {"train.py": RAISES}, hyperparameters={"epochs": "1"}))
    cause, rest = reason.split("\n", 1)
    assert cause.startswith("AlgorithmError: ValueError: no column 'price' (train.py, line "), reason
    assert rest.startswith('ExecuteUserScriptError:\nExitCode 1\nErrorMessage "Traceback (most recent call last):\n'), (
        reason
    )
    assert reason.endswith('ValueError: no column \'price\'"\nCommand "python3 train.py --epochs 1", exit code: 1'), (
        reason
    )


@pytest.mark.parametrize(
    "text, expected",
    [
        ("import os; os._exit(7)", 'ExitCode 7\nErrorMessage ""\nCommand "python3 train.py", exit code: 7'),
        (
            "import sys; sys.exit('my own words')",
            'ErrorMessage "my own words"\nCommand "python3 train.py", exit code: 1',
        ),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        (
            "import sys; open('/opt/ml/output/failure', 'w').write('the file says'); sys.exit(3)",
            ": the file says, exit code: 3",
        ),
        (
            "import sys; sys.stderr.buffer.write(b'\\xff\\x00 junk'); sys.exit(2)",
            'junk"\nCommand "python3 train.py", exit code: 2',
        ),
        ("def broken(:", "SyntaxError: "),
    ],
)
def test_how_a_script_ends_is_told(jobs, text, expected):
    reason = jobs.failed(create(jobs, {"train.py": text}))
    assert expected in reason, reason


def test_a_script_without_a_model_completes(jobs):
    name = create(
        jobs, {"train.py": "import sys; sys.stdout.buffer.write(bytes(range(256)) * 2000); print(); print('end')"}
    )
    jobs.completed(name)
    assert jobs.artifact(name) == {}
    assert jobs.lines(name)[-1] == "end"


def test_a_script_hears_of_a_stop_and_one_that_does_not_listen_is_killed(jobs):
    listens = """
import pathlib, signal, sys, time
def stop(*_):
    pathlib.Path("/opt/ml/model/saved").write_text("in time")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(600)
"""
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
    jobs_of = {text: create(jobs, {"train.py": text}) for text in (listens, deaf)}
    for name in jobs_of.values():
        jobs.saying(name, "ready")
        jobs.sagemaker.stop_training_job(TrainingJobName=name)
    for name in jobs_of.values():
        assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    assert jobs.artifact(jobs_of[listens]) == {"saved": b"in time"}


def test_what_cannot_be_a_source_is_told(jobs):
    def tar(kind, name, link=""):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            archive.addfile(member)
        return packed.getvalue()

    for key, content, expected in [
        ("up", tar(tarfile.REGTYPE, "../../up"), "leads out of the directory"),
        ("absolute", tar(tarfile.REGTYPE, "/tmp/up"), "leads out of the directory"),
        ("device", tar(tarfile.CHRTYPE, "null"), "is neither file, directory nor link"),
        ("text", b"no archive", "it must be a tar archive compressed with gzip"),
    ]:
        uri = jobs.put(f"sources/{key}/sourcedir.tar.gz", content)
        request = jobs.request(
            "no-source",
            AlgorithmSpecification={"TrainingImage": HOST, "TrainingInputMode": "File"},
            HyperParameters={"sagemaker_program": "train.py", "sagemaker_submit_directory": uri},
        )
        jobs.sagemaker.create_training_job(**request)
        reason = jobs.failed(request["TrainingJobName"])
        assert uri in reason and expected in reason, reason


def test_a_script_that_is_no_file_of_the_job_is_left_as_it_is(jobs, tmp_path):
    """The agent makes a shell script executable, and has rights over this machine's files that
    the job has not.
    """
    secret = tmp_path / "secret"
    secret.write_text("echo secret")
    secret.chmod(0o600)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("link")
        member.type, member.linkname = tarfile.SYMTYPE, str(tmp_path)
        archive.addfile(member)
    uri = jobs.put("sources/link/sourcedir.tar.gz", packed.getvalue())
    for program in (str(secret), f"../../../../../../../..{secret}", "link/secret"):
        request = jobs.request(
            "not-mine",
            AlgorithmSpecification={"TrainingImage": HOST, "TrainingInputMode": "File"},
            HyperParameters={"sagemaker_program": program, "sagemaker_submit_directory": uri},
        )
        jobs.sagemaker.create_training_job(**request)
        jobs.failed(request["TrainingJobName"])
        assert secret.stat().st_mode & 0o777 == 0o600, program


def test_a_source_that_is_not_there_is_refused_at_once(jobs):
    request = jobs.request(
        "absent",
        AlgorithmSpecification={"TrainingImage": HOST, "TrainingInputMode": "File"},
        HyperParameters={
            "sagemaker_program": "train.py",
            "sagemaker_submit_directory": f"s3://{BUCKET}/absent/sourcedir.tar.gz",
        },
    )
    with pytest.raises(
        jobs.sagemaker.exceptions.ClientError, match="sagemaker_submit_directory: there is no object s3://"
    ):
        jobs.sagemaker.create_training_job(**request)
