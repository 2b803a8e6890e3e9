"""`shoal jobs delete` and `prune`: what is over goes, with its trials and on request its
objects; what runs stays.
"""

import pytest
from house import BUCKET, eventually
from jobs import Jobs
from test_cli import FAILED, NOT_FOUND, USAGE, run
from tuning_jobs import Tuning


@pytest.fixture(scope="module")
def own(make_house):
    """A server of these tests: what is pruned is everybody's."""
    return Jobs(make_house())


def keys(jobs, prefix):
    return [it["Key"] for it in jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ())]


def names(jobs, *flags):
    return {line.split()[0] for line in run(jobs.house, "jobs", "list", *flags).stdout.splitlines()[1:]}


def trained(jobs):
    name = jobs.command("echo m > '/opt/ml/model/a b+c&d'; echo o > /opt/ml/output/data/o")
    assert jobs.wait(name)["TrainingJobStatus"] == "Completed"
    return name


def tuned(jobs):
    tuning = Tuning(jobs)
    name = tuning.create(tuning.request(tuning.definition(), jobs=2))
    tuning.completed(name)
    return name, {it["TrainingJobName"] for it in tuning.trials(name)}


def test_delete(own):
    one, two = trained(own), trained(own)
    own.put(f"out/{one}/output/more/ü & <b>+%.txt", "kept with its job")
    running = own.command("echo up; exec sleep 60")
    own.saying(running, "up")
    done = run(own.house, "jobs", "delete", two, running, code=USAGE)
    assert "is not over, and nothing was removed" in done.stderr and own.describe(two)
    assert "nobody" in run(own.house, "jobs", "delete", "nobody", code=NOT_FOUND).stderr

    shown = run(own.house, "jobs", "delete", one, two, "--with-objects", "--dry-run").stdout
    assert "would remove 2 training jobs and 5 objects" in shown and own.describe(one), shown
    assert "--yes" in run(own.house, "jobs", "delete", one, "--with-objects", code=USAGE, input="").stderr

    assert "removed 1 training job, their logs and metrics\n" in run(own.house, "jobs", "delete", two).stdout
    assert len(keys(own, f"out/{two}/")) == 2
    done = run(own.house, "jobs", "delete", one, "--with-objects", "--yes").stdout
    assert "removed 1 training job" in done and "; freed " in done, done
    assert keys(own, f"out/{one}/") == [] and names(own, "--all") == {running}
    own.sagemaker.stop_training_job(TrainingJobName=running)
    own.wait(running)


def test_what_others_wrote_and_inputs_stay(own):
    """Below a job's name lie its own channel and another's model."""
    one = "outer"
    own.put(f"out/{one}/input/train/rows.csv", "1,2")
    own.command(
        "echo m > /opt/ml/model/m",
        TrainingJobName=one,
        InputDataConfig=[own.channel("train", f"out/{one}/input/train/")],
    )
    assert own.wait(one)["TrainingJobStatus"] == "Completed"
    inner = own.command(
        "echo m > /opt/ml/model/m", OutputDataConfig={"S3OutputPath": f"s3://{BUCKET}/out/{one}/output/"}
    )
    assert own.wait(inner)["TrainingJobStatus"] == "Completed"
    done = run(own.house, "jobs", "delete", one, "--with-objects", "--yes").stdout
    assert "; freed " in done, done
    assert set(keys(own, f"out/{one}/")) == {
        f"out/{one}/input/train/rows.csv",
        f"out/{one}/output/{inner}/output/model.tar.gz",
    }
    assert own.describe(inner) and one not in names(own)
    run(own.house, "jobs", "delete", inner, "--with-objects", "--yes")


def test_prune_takes_what_is_old_and_tuning_jobs_with_their_trials(own):
    running = own.command("echo up; exec sleep 60")
    own.saying(running, "up")
    old, (tuning, trials) = trained(own), tuned(own)
    # Trials are their tuning job's.
    assert {old, running} <= names(own) and not trials & names(own) and trials <= names(own, "--all")
    assert {key.split("/")[1] for key in keys(own, "tuned/")} == trials
    assert "nothing to remove" in run(own.house, "jobs", "prune", "--older-than", "1h").stdout

    done = run(own.house, "jobs", "prune", "--older-than", "0s", "--with-objects", "--yes").stdout
    assert "and 1 tuning job, their logs and metrics; freed" in done, done
    assert (
        names(own, "--all") == {running}
        and tuning in done
        and trials <= {line.split()[0] for line in done.splitlines()}
    )
    assert not own.sagemaker.list_hyper_parameter_tuning_jobs()["HyperParameterTuningJobSummaries"]
    assert not keys(own, f"out/{old}/") and not keys(own, "tuned/")
    assert own.describe(running)["TrainingJobStatus"] == "InProgress"


def test_what_is_refused_is_told_and_the_others_go(own):
    """A job whose instances are kept warm."""
    pool = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1, "KeepAlivePeriodInSeconds": 600}
    kept = own.command("true", ResourceConfig=pool)
    own.wait(kept)
    eventually(lambda: own.describe(kept)["WarmPoolStatus"]["Status"] == "Available")
    other = trained(own)
    own.put(f"out/{kept}/output/more.txt", "stays with its job")
    done = run(own.house, "jobs", "delete", kept, other, "--with-objects", "--yes", code=FAILED)
    assert (
        kept in done.stderr and "KeepAlivePeriodInSeconds 0" in done.stderr and "removed 1 training job" in done.stdout
    )
    assert other not in names(own) and kept in names(own) and not keys(own, f"out/{other}/")
    assert len(keys(own, f"out/{kept}/output/")) == 2
    refused = run(own.house, "jobs", "delete", kept, code=FAILED).stderr
    assert "KeepAlivePeriodInSeconds 0" in refused, refused
