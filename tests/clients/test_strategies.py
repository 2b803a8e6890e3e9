"""Strategies beyond the API's, chosen by the tag `shoal:strategy`: short searches, each run to
its end by real training jobs.
"""

import base64
import json

import botocore.exceptions
import pytest
import records
from house import BUCKET
from test_cli import USAGE, run
from tunings import Tunings

# Two objectives that cannot both be had: the nearer x is to 1, the less the loss, and the more
# seconds it takes.
RIVALS = r"""
import json
given = json.load(open("/opt/ml/input/config/hyperparameters.json"))
x, y = float(given["x"]), float(given.get("y", 0))
print(f"seconds={x + y:.12f};")
print(f"loss={1 - x + y:.12f};", flush=True)
"""

# Goes on at its checkpoint, its own or another trial's.
KEEPS = r"""
import json, pathlib
given = json.load(open("/opt/ml/input/config/hyperparameters.json"))
place = pathlib.Path("/opt/ml/checkpoints/state.json")
epoch, progress = json.loads(place.read_text()) if place.exists() else (0, 0.0)
print(f"begins at {epoch}", flush=True)
for epoch in range(epoch + 1, int(given["epochs"]) + 1):
    progress += 1 - (float(given["x"]) - 0.3) ** 2
    new = place.with_suffix(".new")
    new.write_text(json.dumps([epoch, progress]))
    new.rename(place)
    print(f"epoch={epoch}; loss={-progress:.12f};", flush=True)
"""

# The same, and never runs on while it is judged.
WAITS = (
    KEEPS.replace("import json, pathlib", "import json, pathlib, time").replace(
        'print(f"begins', 'begun = epoch\nprint(f"begins'
    )
    + r"""
    # Units are counted by what was told: a checkpoint that it began with may be newer than the value that it was copied for.
    def may_not_go_on():
        units = json.loads(pathlib.Path("/opt/ml/input/config/shoal_resource.json").read_text())
        return units.get("until") is not None and units["from"] + epoch - begun >= units["until"]
    while may_not_go_on():
        time.sleep(0.01)
"""
)

NUMBERS = {
    "ContinuousParameterRanges": [{"Name": "x", "MinValue": "0", "MaxValue": "1", "ScalingType": "Linear"}],
    "IntegerParameterRanges": [{"Name": "y", "MinValue": "0", "MaxValue": "4", "ScalingType": "Linear"}],
}


@pytest.fixture(scope="module")
def tunings(jobs):
    return Tunings(jobs)


def tag(strategy):
    """The value of a tag: AWS allows no braces and quotes in it."""
    text = strategy if isinstance(strategy, str) else base64.b64encode(json.dumps(strategy).encode()).decode()
    return [("shoal:strategy", text)]


def study(house, name):
    return json.loads(run(house, "tuning", "show", name, "--json").stdout)


def beats(one, other):
    return all(a <= b for a, b in zip(one, other, strict=True)) and one != other


@pytest.mark.parametrize(
    ("strategy", "searcher", "scheduler"),
    [
        ("sobol", "sobol", "none"),
        ("tpe", "tpe", "none"),
        ("cma-es", "cma_es", "none"),
        ("asha", "random", "asha"),
        ("bohb", "tpe", "hyperband"),
        ("mobster", "multi_fidelity", "asha"),
        ("multi-fidelity+hyperband", "multi_fidelity", "hyperband"),
        ({"searcher": "cma_es", "scheduler": {"kind": "asha", "max_resource": 4}}, "cma_es", "asha"),
    ],
    ids=str,
)
def test_a_strategy_runs_all_its_trials(house, tunings, strategy, searcher, scheduler):
    definition = tunings.curve(epochs=4, pause=0)
    name = tunings.create(definition, strategy="Bayesian", trials=6, parallel=2, ranges=NUMBERS, tags=tag(strategy))
    counters = tunings.completed(name)["TrainingJobStatusCounters"]
    assert counters["Completed"] + counters["Stopped"] == 6, counters
    it = study(house, name)
    (definition,) = it["Definitions"]
    assert (definition["Searcher"], definition["Scheduler"], len(it["Trials"])) == (searcher, scheduler, 6)
    assert len({json.dumps(trial["Values"]) for trial in it["Trials"]}) == 6
    if scheduler == "none":
        assert counters["Completed"] == 6


def test_two_objectives_have_a_front(house, tunings):
    metrics = (("loss", r"loss=(\S+);"), ("seconds", r"seconds=(\S+);"))
    definition = tunings.curve(program=RIVALS, metrics=metrics)
    strategy = {"searcher": "tpe", "objectives": [{"metric": "seconds", "direction": "Minimize"}]}
    name = tunings.create(definition, trials=8, parallel=2, ranges=NUMBERS, tags=tag(strategy))
    tunings.completed(name)
    it = study(house, name)
    (definition,) = it["Definitions"]
    assert definition["Objectives"] == [
        {"MetricName": "loss", "Maximize": False},
        {"MetricName": "seconds", "Maximize": False},
    ]
    results = {}
    for trial in it["Trials"]:
        x, y = (float(text) for _, text in sorted(trial["Values"]))
        assert trial["Objectives"] == pytest.approx([1 - x + y, x + y], abs=1e-9)
        results[trial["Number"]] = trial["Objectives"]
    front = {number for number, own in results.items() if not any(beats(other, own) for other in results.values())}
    assert {trial["Number"] for trial in it["Trials"] if trial["Front"]} == front and front
    assert len(results) == 8


def test_a_further_objective_must_be_a_metric(tunings):
    definition = tunings.curve(program=RIVALS)
    with pytest.raises(
        botocore.exceptions.ClientError, match="metric 'seconds' is not among the metric definitions"
    ) as error:
        tunings.create(definition, tags=tag({"objectives": [{"metric": "seconds"}]}))
    assert error.value.response["Error"]["Code"] == "ValidationException"


def test_a_grid_of_numbers(tunings):
    strategy = {"grid": {"points": 3, "by_name": {"y": 2}}}
    name = tunings.create(tunings.curve(epochs=1, pause=0), trials=6, parallel=2, ranges=NUMBERS, tags=tag(strategy))
    tunings.completed(name)
    tried = sorted(
        (float(it["TunedHyperParameters"]["x"]), int(it["TunedHyperParameters"]["y"])) for it in tunings.trials(name)
    )
    assert tried == [(0.0, 0), (0.0, 4), (0.5, 0), (0.5, 4), (1.0, 0), (1.0, 4)]


def population(house, jobs, tunings, seed):
    """A tuning job by PBT: how many trials went on at another's checkpoint, how many copies
    began anew, and how many came to the end.
    """
    definition = tunings.curve(epochs=6, program=WAITS, CheckpointConfig={"S3Uri": f"s3://{BUCKET}/population"})
    strategy = {"scheduler": {"kind": "pbt", "population": 4, "max_resource": 6}}
    name = tunings.create(definition, trials=12, parallel=2, tags=tag(strategy), RandomSeed=seed)
    it = tunings.completed(name)
    trials = tunings.trials(name)
    counters = it["TrainingJobStatusCounters"]
    reasons = [trial["FailureReason"] for trial in trials if trial["TrainingJobStatus"] == "Failed"]
    assert counters["Completed"] + counters["Stopped"] == len(trials) and 4 <= len(trials) <= 12, (counters, reasons)
    kept = [row["record"] for row in records.study(house, name)]
    starts = [it["answer"]["start"] for it in kept if it["type"] == "asked" and "start" in it["answer"]]
    origins = {start["trial"]: start.get("origin") for start in starts}
    whole, copies, anew = 0, 0, 0
    for number, trial in enumerate(sorted(trials, key=lambda trial: trial["TrainingJobName"])):
        lines = jobs.lines(trial["TrainingJobName"])
        epochs = [int(line.split(";")[0].removeprefix("epoch=")) for line in lines if line.startswith("epoch=")]
        begin = int(next(line for line in lines if line.startswith("begins at ")).removeprefix("begins at "))
        assert epochs == list(range(begin + 1, begin + 1 + len(epochs))), (trial, lines)
        if origins[number]:
            copies += begin > 0
            anew += begin == 0
        else:
            assert begin == 0, (trial, lines)
        # A copy without a checkpoint is counted from its beginning. Its origin's checkpoint may be
        # a little older or newer than the value it was copied for.
        first = next((it["resource"] for it in kept if it["type"] == "reported" and it["trial"] == number), begin + 1)
        assert begin > 0 or first == 1, (trial, lines, first)
        whole += epochs[-1:] == [6]
    return copies, anew, whole


def test_a_population_goes_on_at_the_checkpoints_of_the_best(house, jobs, tunings):
    copies, anew = 0, 0
    # Where trials end before others have values to be compared with, nobody is copied; and on a
    # busy machine a checkpoint may not come within the seconds for which a copy waits for it.
    for seed in range(7, 15):
        seen = population(house, jobs, tunings, seed)
        print(f"seed {seed}: {seen[0]} copies at a checkpoint, {seen[1]} from the beginning")
        copies, anew = copies + seen[0], anew + seen[1]
        assert seen[2] >= 4, "the population comes to its end"
        if copies >= max(anew, 1):
            return
    pytest.fail(f"of eight populations {copies} went on at a checkpoint, and {anew} began anew")


def test_json_in_a_tag_is_refused_unless_it_is_in_base64(tunings):
    with pytest.raises(botocore.exceptions.ClientError) as error:
        tunings.create(tunings.curve(epochs=1), tags=[("shoal:strategy", '{"searcher": "tpe"}')])
    told = error.value.response["Error"]
    assert told["Code"] == "ValidationException" and "regular expression pattern" in told["Message"], told


@pytest.mark.parametrize("in_a_file", [False, True], ids=["text", "file"])
def test_the_command_line_sends_json_as_base64(house, tmp_path, in_a_file):
    text = '{"searcher": {"kind": "sobol"}, "grid": null}'
    (tmp_path / "search.json").write_text(text)
    given = "search.json" if in_a_file else text
    flags = [
        "--image",
        "xgboost",
        "--range",
        "eta=0.1..0.5",
        "--hp",
        "num_round=10",
        "--objective",
        "validation:auc",
        "--trials",
        "4",
        "--dry-run",
        "--json",
    ]
    flags += ["--channel", "train=s3://bucket/train/", "--channel", "validation=s3://bucket/validation/"]
    request = json.loads(run(house, "tune", "--strategy", given, *flags, cwd=tmp_path).stdout)
    (only,) = request["Tags"]
    assert only["Key"] == "shoal:strategy" and json.loads(base64.b64decode(only["Value"])) == json.loads(text)
    assert request["HyperParameterTuningJobConfig"]["Strategy"] == "Bayesian"
    assert "no file none.json" in run(house, "tune", "--strategy", "none.json", *flags, code=USAGE).stderr
