"""Tuning jobs end to end: searches that run real training jobs."""

import data
import pytest
from house import eventually
from tunings import Tunings

pytestmark = pytest.mark.targets


@pytest.fixture(scope="module")
def tunings(jobs):
    jobs.put("tune/train/all.csv", data.as_csv(data.rows(900, 1)))
    jobs.put("tune/validation/all.csv", data.as_csv(data.rows(300, 2)))
    return Tunings(jobs)


def value(trial):
    return trial["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]


def test_a_random_search_of_the_built_in_xgboost(jobs, tunings):
    ranges = {
        "ContinuousParameterRanges": [
            {"Name": "eta", "MinValue": "0.01", "MaxValue": "0.5", "ScalingType": "Logarithmic"}
        ],
        "IntegerParameterRanges": [{"Name": "max_depth", "MinValue": "2", "MaxValue": "6", "ScalingType": "Linear"}],
    }
    definition = tunings.xgboost(
        "tune/train/", "tune/validation/", objective="binary:logistic", eval_metric="auc", num_round=10
    )
    name = tunings.create(definition, ranges=ranges, objective=("Maximize", "validation:auc"))
    it = tunings.completed(name)
    assert it["TrainingJobStatusCounters"] == {
        "Completed": 4,
        "InProgress": 0,
        "RetryableError": 0,
        "NonRetryableError": 0,
        "Stopped": 0,
    }
    assert it["ObjectiveStatusCounters"] == {"Succeeded": 4, "Pending": 0, "Failed": 0}
    trials = tunings.trials(name, SortBy="FinalObjectiveMetricValue", SortOrder="Descending")
    assert len(trials) == 4 and sorted(map(value, trials), reverse=True) == [value(trial) for trial in trials]
    best = it["BestTrainingJob"]
    assert best["TrainingJobName"] == trials[0]["TrainingJobName"] and value(best) == value(trials[0])
    job = jobs.describe(best["TrainingJobName"])
    assert job["TuningJobArn"] == it["HyperParameterTuningJobArn"]
    tuned = best["TunedHyperParameters"]
    assert 0.01 <= float(tuned["eta"]) <= 0.5 and 2 <= int(tuned["max_depth"]) <= 6
    assert job["HyperParameters"] == {
        "objective": "binary:logistic",
        "eval_metric": "auc",
        "num_round": "10",
        "_tuning_objective_metric": "validation:auc",
        **tuned,
    }
    assert value(best) == pytest.approx(jobs.metrics(best["TrainingJobName"])["validation:auc"])


def hyperband(tunings, trials=12, parallel=3, epochs=9, pause=0.03, **changes):
    config = {"StrategyConfig": {"HyperbandStrategyConfig": {"MinResource": 1, "MaxResource": epochs}}}
    return tunings.create(
        tunings.curve(epochs=epochs, pause=pause, **changes),
        strategy="Hyperband",
        trials=trials,
        parallel=parallel,
        **config,
    )


def epochs_of(jobs, trial):
    return [
        int(line.split(";")[0].removeprefix("epoch="))
        for line in jobs.lines(trial["TrainingJobName"])
        if line.startswith("epoch=")
    ]


def test_hyperband_stops_what_falls_behind(jobs, tunings):
    name = hyperband(tunings)
    it = tunings.completed(name)
    trials = tunings.trials(name)
    assert len(trials) == 12
    ran = {trial["TrainingJobName"]: epochs_of(jobs, trial) for trial in trials}
    assert all(epochs == list(range(1, len(epochs) + 1)) for epochs in ran.values()), ran
    assert sum(map(len, ran.values())) < 12 * 9, ran
    stopped = [trial for trial in trials if trial["TrainingJobStatus"] == "Stopped"]
    assert stopped and all(trial["ObjectiveStatus"] == "Succeeded" for trial in stopped)
    assert it["TrainingJobStatusCounters"]["Stopped"] == len(stopped)
    # The loss has one order at every epoch: of those that ran to the end, nobody is better than the
    # one whose x is nearest.
    best = it["BestTrainingJob"]["TunedHyperParameters"]["x"]
    whole = [trial["TunedHyperParameters"]["x"] for trial in trials if len(ran[trial["TrainingJobName"]]) == 9]
    assert best in whole and abs(float(best) - 0.3) == min(abs(float(x) - 0.3) for x in whole)


def test_the_same_seed_gives_the_same_trials(tunings):
    names = [tunings.create(tunings.curve(epochs=1, pause=0)) for _ in range(2)]
    first, second = [
        [trial["TunedHyperParameters"] for trial in tunings.trials(name)] for name in names if tunings.completed(name)
    ]
    assert sorted(map(str, first)) == sorted(map(str, second))


def test_two_tuning_jobs_at_once_share_the_machine(tunings):
    names = [hyperband(tunings, trials=8, parallel=2) for _ in range(2)]
    for name in names:
        assert tunings.completed(name)["BestTrainingJob"]


def test_a_stop_ends_all_trials(jobs, tunings):
    name = tunings.create(tunings.curve(epochs=1000, pause=0.05), trials=20, parallel=2)
    eventually(lambda: len([it for it in tunings.trials(name) if it["TrainingJobStatus"] == "InProgress"]) == 2)
    tunings.stop(name)
    it = tunings.wait(name)
    assert it["HyperParameterTuningJobStatus"] == "Stopped"
    assert {trial["TrainingJobStatus"] for trial in tunings.trials(name)} == {"Stopped"}
    assert it["TrainingJobStatusCounters"]["InProgress"] == 0


def test_a_failed_trial_is_one_more_thing_that_is_known(tunings):
    program = "import json, sys\nx = float(json.load(open('/opt/ml/input/config/hyperparameters.json'))['x'])\nprint(f'loss={x};')\nsys.exit(x > 0.5)\n"
    name = tunings.create(tunings.curve(program=program), trials=6, parallel=1)
    it = tunings.wait(name)
    trials = tunings.trials(name)
    failed = [float(trial["TunedHyperParameters"]["x"]) > 0.5 for trial in trials]
    assert [trial["TrainingJobStatus"] == "Failed" for trial in trials] == failed and any(failed) and not all(failed)
    assert it["HyperParameterTuningJobStatus"] == "Completed" and it["TrainingJobStatusCounters"][
        "NonRetryableError"
    ] == sum(failed)


def test_an_objective_that_never_appears_ends_it_and_near_misses_are_told(tunings):
    program = "print('validation loss = 0.25')\nprint('seconds: 3')\n"
    name = tunings.create(tunings.curve(program=program), trials=10, parallel=1)
    it = tunings.wait(name)
    assert it["HyperParameterTuningJobStatus"] == "Failed"
    assert len(tunings.trials(name)) == 1
    assert "loss" in it["FailureReason"] and "validation loss = 0.25" in it["FailureReason"], it["FailureReason"]


def test_a_deleted_tuning_job_leaves_its_training_jobs(jobs, tunings):
    name = tunings.create(tunings.curve(epochs=1, pause=0), trials=2)
    tunings.completed(name)
    trials = tunings.trials(name)
    tunings.sagemaker.delete_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    with pytest.raises(tunings.sagemaker.exceptions.ResourceNotFound):
        tunings.describe(name)
    assert jobs.describe(trials[0]["TrainingJobName"])["TrainingJobStatus"] == "Completed"
    # The name is free again, and nothing of the old study is in the new one.
    assert len(trials) == 2
