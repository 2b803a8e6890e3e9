"""Makes a data directory as `golden/COMMIT.tar.xz`, with jobs that are queued and running, by a
program of that commit:

    SHOAL_BIN=PROGRAM $(cargo xtask clients | head -1) tests/clients/golden/make.py COMMIT

The server and all that it started are killed, so that the next server finds what a crash leaves. An
archive is never changed; a new format gets another.
"""

import os
import pathlib
import signal
import sys
import tarfile
import time

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import traces  # noqa: E402
from house import BUCKET, House, eventually  # noqa: E402
from jobs import Jobs  # noqa: E402
from tuning_jobs import Tuning  # noqa: E402

# Programs run until this time, so that they are running when the archive is made and end at once
# when it is used.
END = str(int(time.time()) + 120)
WAIT = 'until [ "$(date +%s)" -gt "$END" ]; do sleep 0.1; done'
TRIAL = """
import os, time
while "-001-" not in os.environ["TRAINING_JOB_NAME"] and time.time() < float(os.environ["END"]):
    time.sleep(0.1)
print("loss=0.5;")
"""
SAVED = "/opt/ml/checkpoints/saved"
# Whole files alone; `reserve` is made again.
LEFT_OUT = {"reserve", "client", "address", "server.sock"}


def create(jobs, name, line, **changes):
    algorithm = {
        "TrainingImage": "shoal/host",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["/bin/sh", "-c", line],
    }
    request = jobs.request(name, AlgorithmSpecification=algorithm, Environment={"END": END}, **changes)
    jobs.sagemaker.create_training_job(**{**request, "TrainingJobName": name})


def tune(jobs):
    tuning = Tuning(jobs)
    jobs.put("trial/train.py", TRIAL)
    definition = {
        **tuning.definition(),
        "InputDataConfig": [jobs.channel("code", "trial")],
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        "RetryStrategy": {"MaximumRetryAttempts": 2},
        "Environment": {"END": END},
    }
    request = tuning.request(definition, jobs=4, parallel=1, strategy="Bayesian")
    tuning.create({**request, "HyperParameterTuningJobName": "study"})
    # The first trial has ended, the second one runs.
    counters = {"Completed": 1, "InProgress": 1}
    eventually(lambda: counters.items() <= tuning.describe("study")["TrainingJobStatusCounters"].items())


def fill(house):
    jobs = Jobs(house)
    create(jobs, "ended", "echo done; echo m > /opt/ml/model/m")
    jobs.completed("ended")
    tune(jobs)
    save = f"[ -e {SAVED} ] && echo resumed && exit 0; echo 1 > {SAVED}; echo first; while true; do sleep 1; done"
    checkpoints = {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/checkpoints"}}
    create(jobs, "retried", save, RetryStrategy={"MaximumRetryAttempts": 2}, **checkpoints)
    create(jobs, "lost", "echo first; while true; do sleep 1; done")
    for name in ("retried", "lost"):
        jobs.saying(name, "first")
    eventually(lambda: jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix="checkpoints/").get("KeyCount"))
    create(jobs, "queued", f"{WAIT}; echo ran; echo m > /opt/ml/model/m")
    assert jobs.describe("queued")["SecondaryStatus"] == "Pending"


def main(commit):
    house = House("--instances", "3")
    try:
        fill(house)
        started = traces.processes(house)
        house.stop(signal.SIGKILL)
        for pid in started:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        eventually(lambda: not traces.processes(house))
        (house.data / "MADE").write_text(f"{house.data}\n{int(time.time() * 1000)}\n{END}\n")
        with tarfile.open(HERE / f"{commit}.tar.xz", "w:xz", preset=9) as archive:
            keep = lambda it: None if pathlib.PurePath(it.name).name in LEFT_OUT else it  # noqa: E731
            archive.add(house.data, arcname="data", filter=keep)
    finally:
        house.process = None
        house.close()


main(sys.argv[1])
