"""What a tuning job calls best can be used: trials that end early, at MaxResource or with their
tuning job leave their models.
"""

import json
import re

import data
import pytest
import traces
from house import eventually
from test_cli import run
from test_console_door import Visitor
from tunings import Tunings

# Goes on for ever; saves its model when it is told to end, or never.
ENDLESS = r"""
import itertools, json, pathlib, signal, sys, time
x = float(json.loads(pathlib.Path("/opt/ml/input/config/hyperparameters.json").read_text())["x"])
def save(*_):
    pathlib.Path("/opt/ml/model/x").write_text(str(x))
    sys.exit(0)
signal.signal(signal.SIGTERM, save if SAVES else signal.SIG_DFL)
for epoch in itertools.count(1):
    time.sleep(0.02)
    print(f"epoch={epoch}; loss={(x - 0.3) ** 2 + 1 / epoch:.12f};", flush=True)
"""

ETA = {
    "ContinuousParameterRanges": [{"Name": "eta", "MinValue": "0.01", "MaxValue": "0.5", "ScalingType": "Logarithmic"}]
}


@pytest.fixture(scope="module")
def tunings(jobs):
    jobs.put("models/train/all.csv", data.as_csv(data.rows(900, 1)))
    jobs.put("models/validation/all.csv", data.as_csv(data.rows(300, 2)))
    return Tunings(jobs)


def xgboost(tunings, *, ranges=ETA, trials=9, parallel=3, strategy="Hyperband", most=None, **changes):
    definition = tunings.xgboost(
        "models/train/",
        "models/validation/",
        objective="binary:logistic",
        eval_metric="auc",
        **{"num_round": 1_000_000, **changes},
    )
    config = {"StrategyConfig": {"HyperbandStrategyConfig": {"MinResource": 1, "MaxResource": most}}} if most else {}
    return tunings.create(definition, strategy, trials, parallel, ("Maximize", "validation:auc"), ranges, **config)


def study(house, name):
    return json.loads(run(house, "tuning", "show", name, "--json").stdout)


def test_the_best_of_hyperband_has_its_model_and_every_surface_one_status(house, jobs, tunings, tmp_path):
    name = xgboost(tunings, most=4)
    it = tunings.completed(name)
    best, counters = it["BestTrainingJob"]["TrainingJobName"], it["TrainingJobStatusCounters"]
    # Rounds are left, but the trial's resource is used up: it ends as if there were none.
    job = jobs.describe(best)
    assert (job["TrainingJobStatus"], job["SecondaryStatusTransitions"][-1]["StatusMessage"]) == (
        "Completed",
        "Training job completed",
    )
    assert "MaxResource ends the training after 4 of 1000000 rounds" in "\n".join(jobs.lines(best))
    assert "no model" not in (study(house, name).get("Message") or "")
    trials = {trial["TrainingJobName"]: trial for trial in study(house, name)["Trials"]}
    for trial in tunings.trials(name):
        own = trials[trial["TrainingJobName"]]
        assert own["Curve"] and jobs.artifact(trial["TrainingJobName"])["xgboost-model"], own
        assert (own["State"] == "Completed") == (trial["TrainingJobStatus"] == "Completed"), own
    completed, stopped = counters["Completed"], counters["Stopped"]
    assert completed >= 1 and stopped >= 1 and completed + stopped == 9
    assert f"{completed} completed, {stopped} stopped ({stopped} early)" in run(house, "tuning", "show", name).stdout
    run(house, "tuning", "report", name, "--html", str(tmp_path / "report.html"))
    report = (tmp_path / "report.html").read_text()
    assert (
        f"<dt>completed</dt><dd>{completed}</dd>" in report
        and f"<dt>stopped</dt><dd>{stopped} ({stopped} early)</dd>" in report
    )


def test_the_time_of_trials_is_the_time_that_they_ran(jobs, tunings):
    name = xgboost(tunings, most=9, parallel=1)
    it = tunings.completed(name)
    trials = tunings.trials(name)
    elapsed = sum((trial["TrainingEndTime"] - trial["TrainingStartTime"]).total_seconds() for trial in trials)
    wall = (it["HyperParameterTuningEndTime"] - it["CreationTime"]).total_seconds()
    # One at a time: what they ran together is no more than what passed.
    assert 0 < elapsed <= wall, (elapsed, wall)
    for trial in trials:
        job = jobs.describe(trial["TrainingJobName"])
        assert job["TrainingTimeInSeconds"] == job["BillableTimeInSeconds"]
        assert job["CreationTime"] <= job["TrainingStartTime"] <= job["TrainingEndTime"]


def test_a_paused_xgboost_leaves_its_instance_to_the_next_and_nobody_sees_it(house, jobs, tunings):
    name = xgboost(tunings, most=9, parallel=1)
    instances = []

    def has_ended():
        instances.append(len(traces.programs(house, "algorithm")))
        return tunings.describe(name)["HyperParameterTuningJobStatus"] != "InProgress"

    eventually(has_ended)
    it = tunings.completed(name)
    # A zygote and a run. Those that rest would have as many: six of nine never come beyond the
    # first rung.
    assert max(instances) <= 4, instances
    best = jobs.describe(it["BestTrainingJob"]["TrainingJobName"])
    steps = [step["Status"] for step in best["SecondaryStatusTransitions"]]
    assert steps == ["Starting", "Downloading", "Training", "Uploading", "Completed"], steps
    # Each attempt has a log of its own.
    assert any("Resuming from iteration" in line for line in jobs.lines(best["TrainingJobName"]))
    assert all(jobs.artifact(trial["TrainingJobName"])["xgboost-model"] for trial in tunings.trials(name))


@pytest.mark.parametrize("saves", [True, False])
def test_a_script_that_goes_on_is_stopped_at_max_resource(house, jobs, tunings, tmp_path, saves):
    definition = tunings.curve(program=f"SAVES = {saves}\n{ENDLESS}")
    config = {"StrategyConfig": {"HyperbandStrategyConfig": {"MinResource": 1, "MaxResource": 3}}}
    name = tunings.create(definition, strategy="Hyperband", trials=4, parallel=2, **config)
    it = tunings.completed(name)
    best = it["BestTrainingJob"]["TrainingJobName"]
    job = jobs.describe(best)
    messages = [step["StatusMessage"] for step in job["SecondaryStatusTransitions"]]
    assert job["TrainingJobStatus"] == "Stopped" and not any("promising" in message for message in messages)
    told = study(house, name)
    states = {trial["TrainingJobName"]: trial["State"] for trial in told["Trials"]}
    assert states[best] == "MaxResource" and it["TrainingJobStatusCounters"]["Stopped"] == len(states) == 4, states
    shown = run(house, "tuning", "show", name).stdout
    assert re.search(r"4 stopped \(.*\d at MaxResource", shown) and "Stopped at MaxResource" in shown, shown
    assert list(jobs.artifact(best)) == (["x"] if saves else [])
    run(house, "tuning", "report", name, "--html", str(tmp_path / "report.html"))
    report = (tmp_path / "report.html").read_text()
    visitor = Visitor(house)
    visitor.ask("POST", "/console/sign-in", visitor.keys)
    page = visitor.ask("GET", f"/console/tuning/{name}").text
    for place in [shown, report, page]:
        assert (f"The best training job, {best}, has no model" in place) == (not saves), place
    # Trials that were stopped are over, and counted in the list as well.
    assert '<span class="label">Trials over</span><span>4 of 4</span>' in page, page
    assert re.search(r"<dt>stopped</dt><dd>4 \(.*\d at MaxResource", report), report
    (line,) = [
        line.split()
        for line in run(house, "tuning", "list", "--name", name).stdout.splitlines()
        if line.startswith(f"{name} ")
    ]
    assert line[1:7] == ["Completed", "Hyperband", "4", "0", "0", "0"], line


def test_what_is_best_when_a_tuning_job_is_stopped_has_its_model(jobs, tunings):
    # Rounds of many trees, so that there are not too many lines.
    name = xgboost(tunings, strategy="Random", trials=20, parallel=1, num_parallel_tree=50)
    running = lambda: [it["TrainingJobName"] for it in tunings.trials(name) if it["TrainingJobStatus"] == "InProgress"]
    eventually(lambda: any(line.startswith("[3]") for it in running() for line in jobs.lines(it)))
    tunings.stop(name)
    it = tunings.wait(name)
    (trial,) = tunings.trials(name)
    assert (it["HyperParameterTuningJobStatus"], trial["TrainingJobStatus"]) == ("Stopped", "Stopped")
    assert it["BestTrainingJob"]["TrainingJobName"] == trial["TrainingJobName"]
    assert jobs.artifact(trial["TrainingJobName"])["xgboost-model"]


def test_trials_that_the_median_rule_stops_have_their_models(house, jobs, tunings):
    # It ends by itself, so that there are trials to compare with.
    program = f"SAVES = True\n{ENDLESS}    if epoch == 50: save()\n"
    name = tunings.create(tunings.curve(program=program), trials=15, parallel=3, TrainingJobEarlyStoppingType="Auto")
    it = tunings.completed(name)
    counters = it["TrainingJobStatusCounters"]
    assert (
        counters["Completed"] >= 3 and counters["Stopped"] >= 1 and counters["Completed"] + counters["Stopped"] == 15
    ), counters
    for trial in tunings.trials(name):
        assert float(jobs.artifact(trial["TrainingJobName"])["x"]) == float(trial["TunedHyperParameters"]["x"])
    early = [trial for trial in study(house, name)["Trials"] if trial["State"] == "Stopped"]
    assert len(early) == counters["Stopped"], early


def test_a_trial_that_is_stopped_by_itself_can_be_the_best(jobs, tunings):
    program = f"SAVES = True\n{ENDLESS}"
    limited = tunings.create(
        tunings.curve(program=program, StoppingCondition={"MaxRuntimeInSeconds": 5}), trials=1, parallel=1
    )
    stopped = tunings.create(tunings.curve(program=program), trials=1, parallel=1)
    (trial,) = eventually(lambda: tunings.trials(stopped))
    jobs.saying(trial["TrainingJobName"], "epoch=2")
    jobs.sagemaker.stop_training_job(TrainingJobName=trial["TrainingJobName"])
    for name, secondary in [(limited, "MaxRuntimeExceeded"), (stopped, "Stopped")]:
        best = tunings.wait(name)["BestTrainingJob"]
        assert jobs.describe(best["TrainingJobName"])["SecondaryStatus"] == secondary
        assert float(jobs.artifact(best["TrainingJobName"])["x"]) == float(best["TunedHyperParameters"]["x"])
