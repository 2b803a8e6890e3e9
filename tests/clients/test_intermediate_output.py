"""What a script writes below /opt/ml/output/intermediate goes to sagemaker_s3_output while it
runs, as SageMaker's toolkit has it.
"""

import json

import pytest
from house import BUCKET, eventually
from programs import S3
from test_checkpoints import keys, receipts, saved
from test_script_mode import create


def to(uri=f"s3://{BUCKET}/shown/"):
    """The hyperparameter as SDK v2 sends it: every one is JSON."""
    return {"sagemaker_s3_output": json.dumps(uri)}


def place(name):
    return f"shown/{name}/output/intermediate"


# Writes at once, and again when it is told to end; each time under a name of its own.
WRITES = """
import os, signal, sys
here = os.path.join(os.environ["SM_OUTPUT_INTERMEDIATE_DIR"], os.environ["SM_CURRENT_HOST"])
me = os.urandom(4).hex()

def write(name):
    os.makedirs(os.path.join(here, "plots"), exist_ok=True)
    with open(os.path.join(here, "plots", name + me), "w") as file:
        file.write(name)

def end(*_):
    write("late-")
    sys.exit(143)

signal.signal(signal.SIGTERM, end)
write("early-")
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_every_instance_s_files_go_there_while_it_runs_and_at_its_end(jobs):
    name = create(jobs, {"train.py": WRITES}, instances=2, hyperparameters=to())
    early = eventually(lambda: len(found := keys(jobs, place(name))) == 2 and found)
    assert jobs.describe(name)["TrainingJobStatus"] == "InProgress", "not only at the end"
    for host in ("algo-1", "algo-2"):
        (path,) = [path for path in early if path.startswith(f"{host}/plots/early-")]
        assert saved(jobs, place(name), path) == b"early-"
        jobs.saying(name, "ready", host)
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    found = sorted(path.rsplit("-", 1)[0] for path in keys(jobs, place(name)))
    assert found == [f"{host}/plots/{when}" for host in ("algo-1", "algo-2") for when in ("early", "late")]
    noted = [
        line
        for line in jobs.logs(name)["algo-1"]
        if line.startswith("[shoal] 2 intermediate output files are saved below")
    ]
    assert len(noted) == 1 and f"s3://{BUCKET}/{place(name)}/" in noted[0], jobs.logs(name)["algo-1"]
    assert receipts(jobs, name) == [], "they are no checkpoints"


def test_files_of_an_interrupted_attempt_stay_and_the_next_adds_its_own(jobs):
    spot = {
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 1200},
    }
    name = create(jobs, {"train.py": WRITES}, hyperparameters=to(), **spot)

    def written(when):
        return [path for path in keys(jobs, place(name)) if path.startswith(f"algo-1/plots/{when}-")]

    eventually(lambda: len(written("early")) == 1)
    jobs.saying(name, "ready")
    jobs.house.shoal("chaos", "interrupt", name)
    eventually(lambda: len(written("early")) == 2)
    assert len(written("late")) == 1, "what the first wrote when it was told to end is saved before the second begins"
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    assert len(written("early")) == 2


FAILS = (
    S3
    + """
job = os.environ["TRAINING_JOB_NAME"]
print(s3("PUT", f"/tests/shown/{job}/output/intermediate/by-itself", b"1")[0])
print(s3("PUT", f"/tests/shown/{job}/output/by-itself", b"1")[0])
print(s3("PUT", "/tests/shown/another-job/output/intermediate/by-itself", b"1")[0])
with open("/opt/ml/output/intermediate/last", "w") as file:
    file.write("the last word")
open(b"/opt/ml/output/intermediate/\\xff", "w").close()
raise ValueError("on purpose")
"""
)


def test_a_script_that_fails_leaves_its_files_and_its_keys_open_that_place_only(jobs):
    name = create(jobs, {"train.py": FAILS}, hyperparameters=to())
    assert "on purpose" in jobs.failed(name)
    # The traceback comes through another pipe, and may be told between these.
    lines = jobs.lines(name)
    assert [line for line in lines if line.isdigit()] == ["200", "403", "403"], lines
    eventually(lambda: keys(jobs, place(name)) == {"by-itself": 1, "last": 13})
    told = "is not saved: a key in S3 is UTF-8, and its name is not"
    eventually(
        lambda: any(
            line.startswith("[shoal] intermediate output") and line.endswith(told) for line in jobs.logs(name)["algo-1"]
        )
    )


def test_no_place_or_one_that_cannot_be(jobs):
    writes = "open('/opt/ml/output/intermediate/x', 'w').write('1'); print('written')"
    for uri in (None, "file:///tmp/out", ""):
        name = create(jobs, {"train.py": writes}, hyperparameters=to(uri))
        jobs.completed(name)
        assert jobs.lines(name) == ["written"] and not any("intermediate" in line for line in jobs.logs(name)["algo-1"])
    for uri, expected in [
        ("shown", "'hyperParameters.sagemaker_s3_output'"),
        (
            "s3://no-such-bucket/x",
            'hyperParameters.sagemaker_s3_output: the S3 bucket "no-such-bucket" does not exist; create it first',
        ),
    ]:
        with pytest.raises(jobs.sagemaker.exceptions.ClientError, match=expected):
            create(jobs, {"train.py": writes}, hyperparameters=to(uri))
