"""What an earlier version accepted and stored is read by this one: data directories that it
left, and requests that today's rules refuse.
"""

import json
import pathlib
import re
import signal
import sqlite3
import tarfile
import time

import pytest
from jobs import Jobs
from tuning_jobs import Tuning

GOLDEN = pathlib.Path(__file__).parent / "golden"
# Milliseconds since the epoch.
TIME = re.compile(rb"(?<![0-9])1[6-9][0-9]{11}(?![0-9])")
DAY_MS = 86_400_000


def unpacked(commit, root):
    """The data directory of the archive, as if it had been left just now at this place: paths
    and times are written again.
    """
    with tarfile.open(GOLDEN / f"{commit}.tar.xz") as archive:
        archive.extractall(root, filter="tar")
    data = root / "data"
    place, made_ms, end = (data / "MADE").read_text().split()
    assert time.time() > int(end), "programs of the archive wait for this time"
    later = int(time.time() * 1000) - int(made_ms)

    def moved(text):
        shift = lambda it: b"%d" % (int(it[0]) + later if abs(int(it[0]) - int(made_ms)) < DAY_MS else int(it[0]))  # noqa: E731
        return TIME.sub(shift, text.replace(place.encode(), str(data).encode()))

    for path in (path for path in data.rglob("*") if path.suffix == ".json"):
        path.write_bytes(moved(path.read_bytes()))
    journal = sqlite3.connect(data / "shoal.db")
    for (table,) in journal.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for _, column, *_ in journal.execute(f"PRAGMA table_info({table})").fetchall():
            values = journal.execute(f"SELECT DISTINCT {column} FROM {table}").fetchall()
            for (value,) in values:
                if isinstance(value, bytes):
                    now = moved(value)
                elif isinstance(value, int):
                    now = int(moved(b"%d" % value))
                else:
                    continue
                if now != value:
                    journal.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (now, value))
    journal.commit()
    journal.close()
    return data


@pytest.fixture
def old(new_house, tmp_path):
    """A server on the data directory of the commit before resources had one table and requests a
    stored form.
    """
    house = new_house("--instances", "3", data=unpacked("a697b53", tmp_path))
    jobs = Jobs.__new__(Jobs)
    jobs.house = house
    jobs.connect()
    return jobs


def test_a_data_directory_of_an_earlier_version_is_served(old):
    jobs = old
    assert jobs.completed("queued")["AlgorithmSpecification"]["TrainingInputMode"] == "File"
    assert jobs.lines("queued") == ["ran"] and jobs.artifact("queued") == {"m": b"m\n"}
    # Their agents were killed with the server: the one with a retry strategy continues from its
    # checkpoint.
    jobs.completed("retried")
    assert jobs.lines("retried")[-1] == "resumed"
    assert jobs.failed("lost")
    ended = jobs.describe("ended")
    assert (ended["TrainingJobStatus"], jobs.lines("ended"), jobs.artifact("ended")) == (
        "Completed",
        ["done"],
        {"m": b"m\n"},
    )


def test_a_study_of_an_earlier_version_continues(old):
    tuning = Tuning(old)
    (first, *_) = sorted(tuning.trials("study"), key=lambda it: it["TrainingJobName"])
    study = tuning.completed("study")
    assert study["TrainingJobStatusCounters"]["Completed"] == 4
    trials = sorted(tuning.trials("study"), key=lambda it: it["TrainingJobName"])
    assert trials[0] == first and len({it["TunedHyperParameters"]["x"] for it in trials}) == 4


def damage(house, kind, name, change, spec=None):
    """Edits a request in the rows of a server that does not run."""
    rows = sqlite3.connect(house.data / "shoal.db")
    where = "WHERE kind = ? AND name = ?"
    (text,) = rows.execute(f"SELECT request FROM resource {where}", (kind, name)).fetchone()
    request = json.loads(text)
    change(request)
    rows.execute(f"UPDATE resource SET request = ? {where}", (json.dumps(request).encode(), kind, name))
    if spec is not None:
        rows.execute(f"UPDATE resource SET spec = ? {where}", (spec, kind, name))
    rows.commit()
    rows.close()


def test_a_queue_of_requests_that_are_refused_today_is_served(new_house):
    house = new_house("--instances", "1")
    jobs = Jobs(house)
    tuning = Tuning(jobs)
    ended = jobs.command("true")
    jobs.completed(ended)
    first = jobs.script("echo ready; sleep 3")
    jobs.saying(first, "ready")
    second = jobs.command(
        "echo ran; echo $A", Environment={"A": "a"}, metrics=[("loss", "loss=([0-9.]+)")], instance_type="ml.m5.large"
    )
    study = tuning.create(tuning.request(tuning.definition(epochs=1), jobs=2, parallel=1))
    house.stop(signal.SIGKILL)

    def refuse(request):
        request["AlgorithmSpecification"]["TrainingInputMode"] = "Telepathy"
        request["AlgorithmSpecification"]["MetricDefinitions"][0]["Regex"] = "("
        request["Environment"] = {"A": "x" * 100_000}

    def refuse_study(request):
        request["TrainingJobDefinition"]["AlgorithmSpecification"]["TrainingInputMode"] = "Telepathy"
        request["HyperParameterTuningJobConfig"]["Strategy"] = "Guess"

    damage(house, "training-job", second, refuse)
    damage(house, "hyper-parameter-tuning-job", study, refuse_study)
    # As a row of an earlier version whose request this one cannot convert.
    damage(
        house,
        "training-job",
        ended,
        lambda request: request["AlgorithmSpecification"].update(TrainingInputMode="Telepathy"),
        spec=b"",
    )
    house.start()
    jobs.connect()
    tuning.client = jobs.sagemaker
    assert jobs.describe(second)["AlgorithmSpecification"]["TrainingInputMode"] == "Telepathy", (
        "the echo is what is stored"
    )
    description = jobs.describe(ended)
    assert (description["AlgorithmSpecification"]["TrainingInputMode"], description["TrainingJobStatus"]) == (
        "Telepathy",
        "Completed",
    )
    assert description["ModelArtifacts"]["S3ModelArtifacts"].endswith(f"/{ended}/output/model.tar.gz")
    jobs.completed(first)
    jobs.completed(second)
    assert jobs.lines(second) == ["ran", "a"]
    assert tuning.completed(study)["TrainingJobStatusCounters"]["Completed"] == 2
    assert {it["TrainingJobStatus"] for it in tuning.trials(study)} == {"Completed"}
    listed = jobs.sagemaker.list_hyper_parameter_tuning_jobs()["HyperParameterTuningJobSummaries"]
    assert [it["Strategy"] for it in listed if it["HyperParameterTuningJobName"] == study] == ["Random"]
