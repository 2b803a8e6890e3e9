"""Tuning by the command line: `shoal tune`, what `shoal tuning` shows and changes, and the
report in a real browser.
"""

import json

import data
import pytest
from browser import DESK, PHONE, FLAGS, chromium
from house import eventually
from playwright.sync_api import expect, sync_playwright
from test_cli import FAILED, NOT_FOUND, USAGE, run
from test_metrics_endpoint import fetch, samples

# Learns a little in each of nine steps; how much, its hyperparameters say.
PROGRAM = """
import json, time
given = json.load(open("/opt/ml/input/config/hyperparameters.json"))
rate, kind = float(given["rate"]), given["kind"]
for step in range(1, 10):
    loss = (rate - 0.3) ** 2 + (0.1 if kind == "bad<er>" else 0) + 1 / step
    print(f"loss={loss};", flush=True)
    time.sleep(0.1)
"""

HYPERBAND = ["--strategy", "hyperband", "--min-resource", "1", "--max-resource", "9"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("tune")
    (path / "train.py").write_text(PROGRAM)
    (path / "train.csv").write_text(data.as_csv(data.rows(300, 0)))
    (path / "validation.csv").write_text(data.as_csv(data.rows(100, 1)))
    return path


def tune(house, directory, name, *flags, **options):
    return run(
        house, "tune", "--name", name, "--channel", "code=train.py", "--metric", r"loss=loss=(\S+);", "--minimize", "loss",
        "--range", "rate=0..1", "--choice", "kind=bad<er>,good", "--seed", "3", *flags,
        "--", "/usr/bin/python3", "/opt/ml/input/data/code/train.py", cwd=directory, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tuned(house, jobs, directory):
    """Name of a tuning job that `shoal tune` has run."""
    done = tune(house, directory, "by-hand", *HYPERBAND, "--trials", "8", "--parallel", "2", "--report", "report.html")
    assert "by-hand  Completed" in done.stdout and "trials    8 of 8" in done.stdout, done.stdout
    assert "best " in done.stderr, done.stderr
    return "by-hand"


def study(house, name):
    return json.loads(run(house, "tuning", "show", name, "--json").stdout)


def test_the_study_is_told_whole(house, jobs, tuned):
    it = study(house, tuned)
    (definition,) = it["Definitions"]
    assert definition["Levels"] == [1, 3, 9] and definition["Scheduler"] == "hyperband"
    assert definition["Objectives"] == [{"MetricName": "loss", "Maximize": False}]
    assert [parameter["Name"] for parameter in definition["Parameters"]] == ["rate", "kind"]
    trials = it["Trials"]
    assert [trial["Number"] for trial in trials] == list(range(1, 9))
    described = jobs.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=tuned)
    best = next(trial for trial in trials if trial["Number"] == it["BestTrial"])
    assert best["TrainingJobName"] == described["BestTrainingJob"]["TrainingJobName"]
    for trial in trials:
        resources = [point[0] for point in trial["Curve"]]
        assert resources == list(range(1, len(resources) + 1))
        # A trial that came to the greatest resource is whole, though its training job was stopped
        # there.
        assert trial["State"] == ("Completed" if len(resources) == 9 else "Stopped")
        values = dict(trial["Values"])
        expected = (float(values["rate"]) - 0.3) ** 2 + (0.1 if values["kind"] == "bad<er>" else 0)
        assert all(abs(value - expected - 1 / step) < 1e-9 for step, value in trial["Curve"])
        assert trial["BillableSeconds"] > 0


def test_show_and_list(house, tuned):
    shown = run(house, "tuning", "show", tuned).stdout
    for text in (tuned, "Completed", "8 of 8", "resource  trials", "reached", "loss, minimised", "rate="):
        assert text in shown, shown
    listed = run(house, "tuning", "list").stdout
    assert tuned in listed and "Hyperband" in listed
    (summary,) = json.loads(run(house, "tuning", "list", "--name", tuned, "--json").stdout)
    assert summary["HyperParameterTuningJobStatus"] == "Completed"


def test_mistakes_have_exit_codes(house, directory):
    assert "there is no tuning job nobody" in run(house, "tuning", "show", "nobody", code=NOT_FOUND).stderr
    assert "there is no tuning job nobody" in run(house, "tuning", "stop", "nobody", code=NOT_FOUND).stderr
    assert "--range rate" in run(house, "tune", "--image", "xgboost", "--range", "rate", code=USAGE).stderr
    parent = tune(house, directory, "orphan", "--warm-start", "nobody", "--trials", "1", code=NOT_FOUND).stderr
    assert "there is no tuning job nobody" in parent and "--warm-start nobody" in parent, parent


OWN = ["--metric", r"loss=loss=(\S+);"]
TREES = ["--image", "xgboost", "--channel", "train=train.csv", "--objective", "validation:auc"]
EXPLAINED = [
    (["--range", "rate=0..1", *OWN], "what shall be optimised? Give --objective METRIC"),
    (["--minimize", "loss", *OWN], "what shall be tuned? Give --range NAME=MIN..MAX"),
    (["--minimize", "loss", "--range", "rate=0..1"], "nothing reads it from what the program prints; give --metric 'loss=REGEX'"),
    (["--minimize", "los", "--range", "rate=0..1", *OWN], "no --metric has this name; did you mean loss?"),
    (["--minimize", "loss", "--range", "rate=0..1", "--metric", r"loss=loss=\S+"], "the first group of the expression finds, and it has none"),
    (["--minimize", "loss", "--range", "rate=0.5..0.1", *OWN], "--range rate=0.5..0.1: 0.5 is greater than 0.1"),
    (["--minimize", "loss", "--range", "rate=0..1,log", *OWN], "raise its smaller end, as in 0.001..1,log"),
    (["--minimize", "loss", "--range", "rate=0..1", "--choice", "rate=0,1", *OWN], "rate is tuned twice"),
    (["--minimize", "loss", "--range", "rate=0..1", "--hp", "rate=1", *OWN], "--hp rate fixes what --range or --choice rate tunes"),
    (["--minimize", "loss", "--range", "rate=0..1", "--strategy", "grid", *OWN], "list its values (--choice rate=A,B,C), or say in how many steps"),
    (["--minimize", "loss", "--range", "rate=0..1", "--strategy", "tpee", *OWN], 'there is no strategy "tpee"; did you mean tpe?'),
    (["--minimize", "loss", "--range", "rate=0..1", "--strategy", '{"searcher":{"kind":"bayesian","initail":3}}', *OWN], 'no option "initail"'),
    (["--minimize", "loss", "--range", "rate=0..1", "--strategy", "asha", *OWN], "--strategy asha has to know after how many values of loss"),
    (["--minimize", "loss", "--range", "rate=0..1", "--strategy", "asha", "--early-stopping", *OWN], "asha decides by itself which trials are stopped"),
    (["--minimize", "loss", "--range", "rate=0..1", "--trials", "0", *OWN], "--trials"),
    (["--minimize", "loss", "--range", "rate=0..1", "--name", "a-name-that-is-longer-than-thirty-two", *OWN], "32 characters at most"),
    (["--minimize", "loss", "--range", "rate=0..1", "--checkpoints", "/tmp/kept", *OWN], "wanted s3://BUCKET/PREFIX"),
    (["--minimize", "loss", "--range", "rate=0..1", "--checkpoints", "s3://bucket/" + "x" * 1000, *OWN], "--checkpoints: the address is 1012 characters"),
    ([*TREES, "--hp", "num_round=5", "--range", "etaa=0.1..0.5"], "--range etaa: xgboost has no such hyperparameter; did you mean eta?"),
    ([*TREES, "--hp", "num_round=5", "--hp", "max_dept=3", "--range", "eta=0.1..0.5"], "--hp max_dept: xgboost has no such hyperparameter; did you mean max_depth?"),
    ([*TREES, "--hp", "num_round=5", "--range", "eta=0.1..5"], "--range eta: xgboost does not take it: Hyperparameter eta: 5 is not in [0, 1]"),
    ([*TREES, "--range", "eta=0.1..0.5"], "xgboost needs the hyperparameter num_round: give --hp num_round=100"),
    ([*TREES[:-1], "validation:au", "--hp", "num_round=5", "--range", "eta=0.1..0.5"], "no such metric for tuning; did you mean validation:auc?"),
    ([*TREES[:-2], "--minimize", "validation:auc", "--hp", "num_round=5", "--range", "eta=0.1..0.5"], "better is more; give --maximize validation:auc"),
    ([*TREES, "--hp", "num_round=5", "--range", "eta=0.1..0.5"], "measured on the channel validation, and there is none: give --channel validation=FILE"),
]  # fmt: skip


def test_mistakes_are_told_in_the_command_line_s_own_words(house, directory):
    """Before anything is uploaded: the server hears nothing of them."""
    program = ["--", "/usr/bin/python3", "-c", "pass"]
    for flags, said in EXPLAINED:
        command = [] if "--image" in flags else program
        refused = run(house, "tune", *flags, *command, code=USAGE, cwd=directory).stderr
        assert said in refused, (flags, refused)
        assert "Exception" not in refused and "hyperParameter" not in refused, refused


def test_a_dry_run_needs_no_server_and_makes_nothing(house, directory):
    """What it prints is a request that can be sent once the files are where it says."""
    flags = ["--name", "dry", "--minimize", "loss", "--range", "rate=0..1", *OWN, "--channel", "code=train.py"]
    nobody = ["--data-dir", str(directory / "nowhere")]
    done = run(house, "tune", "--dry-run", *flags, *nobody, "--", "/usr/bin/python3", "-c", "pass", cwd=directory)
    request = json.loads(done.stdout)
    uri = request["TrainingJobDefinition"]["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"]
    assert (
        uri.startswith("s3://")
        and "/dry/input/code/" in uri
        and f"train.py (1 file) would be uploaded to {uri}" in done.stderr
    )
    assert not (directory / "nowhere").exists()
    assert (
        "could not read none.py"
        in run(house, "tune", "--dry-run", *flags[:-1], "code=none.py", "--", "true", code=FAILED, cwd=directory).stderr
    )


def test_parallel_and_stop(house, jobs, directory):
    slow = PROGRAM.replace("sleep(0.1)", "sleep(0.5)")
    (directory / "train.py").write_text(slow)
    try:
        tune(
            house,
            directory,
            "changed",
            "--strategy",
            "random",
            "--trials",
            "40",
            "--parallel",
            "1",
            "--instance-type",
            "ml.t3.medium",
            "--detach",
        )
    finally:
        (directory / "train.py").write_text(PROGRAM)
    running = lambda: [trial for trial in study(house, "changed")["Trials"] if trial["State"] == "Running"]
    eventually(lambda: len(running()) == 1)
    assert "up to 3 trials" in run(house, "tuning", "parallel", "changed", "3").stdout
    eventually(lambda: len(running()) == 3)
    (line,) = [line.split() for line in run(house, "top", "--once").stdout.splitlines() if line.startswith("changed ")]
    assert line[1] == "InProgress" and "of 40" in " ".join(line)
    counted = samples(fetch(house))
    assert counted[("shoal_tuning_jobs", "InProgress")] == 1 and counted[("shoal_trials_started_total",)] >= 11
    run(house, "tuning", "stop", "changed")
    stopped = eventually(lambda: (it := study(house, "changed"))["HyperParameterTuningJobStatus"] == "Stopped" and it)
    # Nobody found the others more promising: that is no early stop.
    assert {trial["State"] for trial in stopped["Trials"]} <= {"Cancelled", "Completed"}
    cancelled = [trial for trial in stopped["Trials"] if trial["State"] == "Cancelled"]
    assert cancelled and {trial["Reason"] for trial in cancelled} == {"its tuning job was stopped by its user"}
    shown = run(house, "tuning", "show", "changed").stdout
    assert (
        f"{len(cancelled)} cancelled" in shown
        and "stopped early" not in shown
        and "its tuning job was stopped by its user  (trial" in shown
    )


ASTRAY = """
import json, time
given = json.load(open("/opt/ml/input/config/hyperparameters.json"))
rate, kind = float(given["rate"]), given["kind"]
print(f"loss={rate};", flush=True)
if kind == "fails":
    raise ValueError(f"no {rate} today")
print("loss=%s;" % ("nan" if kind == "diverges" else rate / 2), flush=True)
time.sleep(0.2)
"""


def test_trials_that_fail_or_go_astray_are_told_with_the_reason(house, jobs, directory):
    (directory / "astray.py").write_text(ASTRAY)
    command = ["--", "/usr/bin/python3", "/opt/ml/input/data/code/astray.py"]
    flags = [
        "--channel",
        "code=astray.py",
        *OWN,
        "--minimize",
        "loss",
        "--range",
        "rate=0.5..1",
        "--choice",
        "kind=fails,diverges,fine",
    ]
    flags += ["--strategy", '{"grid":{"points":2}}', "--seed", "1", "--report", "astray.html"]
    done = run(house, "tune", "--name", "astray", *flags, *command, cwd=directory)
    trials = study(house, "astray")["Trials"]
    # Nobody has said how many trials there are to be: a grid knows.
    assert len(trials) == 6
    ends = {(dict(trial["Values"])["kind"], trial["State"]) for trial in trials}
    assert ends == {("fails", "Failed"), ("diverges", "Completed"), ("fine", "Completed")}
    for trial in trials:
        kind = dict(trial["Values"])["kind"]
        assert ("today" in (trial["Reason"] or "")) == (kind == "fails"), trial
        assert trial["NotNumbers"] == ([2] if kind == "diverges" else []) and len(trial["Curve"]) == (
            2 if kind == "fine" else 1
        ), trial
        if kind == "diverges":
            # To the API it is a training job that completed, and an objective that failed.
            summaries = jobs.sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(
                HyperParameterTuningJobName="astray"
            )["TrainingJobSummaries"]
            (summary,) = [it for it in summaries if it["TrainingJobName"] == trial["TrainingJobName"]]
            assert (
                summary["ObjectiveStatus"] == "Failed" and "FinalHyperParameterTuningJobObjectiveMetric" not in summary
            )
    for text in (done.stdout, run(house, "tuning", "show", "astray").stdout):
        assert (
            "2 x  AlgorithmError: ValueError: no " in text
            and "what one of them printed: shoal jobs logs astray-" in text
        ), text
        assert "objective not a number (nan): trials " in text and "best      0.25000" in text, text
    assert "Failed" in done.stderr and "nan" in done.stderr, done.stderr
    page = (directory / "astray.html").read_text()
    assert "ValueError: no " in page and "The objective was not a number" in page


def test_a_request_file_and_a_strategy_beyond_the_api(house, directory):
    request = {
        "HyperParameterTuningJobConfig": {
            "ParameterRanges": {"ContinuousParameterRanges": [{"Name": "rate", "MinValue": "0", "MaxValue": "1"}]},
            "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
        },
        "TrainingJobDefinition": {"StaticHyperParameters": {"kind": "good"}},
    }
    (directory / "tuning.json").write_text(json.dumps(request))
    flags = [
        "--strategy",
        "tpe",
        "--trials",
        "3",
        "--json",
        "--name",
        "from-file",
        "--channel",
        "code=train.py",
        "--metric",
        r"loss=loss=(\S+);",
    ]
    command = ["--", "/usr/bin/python3", "/opt/ml/input/data/code/train.py"]
    done = run(house, "tune", "tuning.json", *flags, *command, cwd=directory)
    it = json.loads(done.stdout)
    assert (it["HyperParameterTuningJobStatus"], it["Definitions"][0]["Searcher"], len(it["Trials"])) == (
        "Completed",
        "tpe",
        3,
    )
    # The API says Bayesian of it, as it has no other name for what it does not know.
    (listed,) = [line.split() for line in run(house, "tuning", "list", "--name", "from-file").stdout.splitlines()[1:]]
    assert listed[:3] == ["from-file", "Completed", "tpe"]


@pytest.mark.parametrize("viewport, dark", [(DESK, False), (PHONE, True)])
def test_the_report_in_a_browser(house, tuned, directory, viewport, dark):
    run(house, "tuning", "report", tuned, "--html", "again.html", cwd=directory)
    with sync_playwright() as playwright:
        engine = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        context = engine.new_context(viewport=viewport, color_scheme="dark" if dark else "light")
        asked, complaints = [], []
        context.on("request", lambda request: asked.append(request.url))
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
        page.goto((directory / "again.html").as_uri())
        expect(page.locator("body")).to_have_attribute("data-drawn", "5")
        for chart in ("over-time", "curves", "rungs", "parallel", "importance"):
            expect(page.locator(f"#{chart} canvas")).to_be_visible()
            # Something is drawn: not all of it has one colour.
            colours = page.evaluate(
                "id => { const c = document.querySelector(`#${id} canvas`); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
                " return new Set(new Uint32Array(d.buffer)).size }",
                chart,
            )
            assert colours > 5, chart
        rows = page.locator("#trials tbody tr")
        expect(rows).to_have_count(8)
        page.get_by_role("button", name="loss").click()
        losses = [float(text) for text in page.locator("#trials tbody tr td:nth-child(5)").all_inner_texts()]
        assert losses == sorted(losses)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= viewport["width"]
        engine.close()
    assert not complaints
    assert all(url.startswith(("file:", "data:")) for url in asked), asked
