"""Tuning by the command line: `shoal tune`, what `shoal tuning` shows and changes, and the report in a real browser."""

import json

import data
import pytest
from browser import DESK, PHONE, FLAGS, chromium
from house import eventually
from playwright.sync_api import expect, sync_playwright
from test_cli import FAILED, NOT_FOUND, USAGE, run

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
        # A trial that came to the greatest resource is whole, though its training job was stopped there.
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
    never = "rate=0.5..0.1"
    refused = run(house, "tune", "--image", "xgboost", "--range", never, "--objective", "validation:auc", code=FAILED, cwd=directory).stderr
    assert "ValidationException" in refused and "rate" in refused, refused


def test_parallel_and_stop(house, jobs, directory):
    slow = PROGRAM.replace("sleep(0.1)", "sleep(0.5)")
    (directory / "train.py").write_text(slow)
    try:
        tune(house, directory, "changed", "--strategy", "random", "--trials", "40", "--parallel", "1", "--instance-type", "ml.t3.medium", "--detach")
    finally:
        (directory / "train.py").write_text(PROGRAM)
    running = lambda: [trial for trial in study(house, "changed")["Trials"] if trial["State"] == "Running"]
    eventually(lambda: len(running()) == 1)
    assert "up to 3 trials" in run(house, "tuning", "parallel", "changed", "3").stdout
    eventually(lambda: len(running()) == 3)
    run(house, "tuning", "stop", "changed")
    stopped = eventually(lambda: (it := study(house, "changed"))["HyperParameterTuningJobStatus"] == "Stopped" and it)
    assert all(trial["State"] in ("Stopped", "Completed") for trial in stopped["Trials"])


def test_a_request_file_and_a_strategy_beyond_the_api(house, directory):
    request = {
        "HyperParameterTuningJobConfig": {
            "ParameterRanges": {"ContinuousParameterRanges": [{"Name": "rate", "MinValue": "0", "MaxValue": "1"}]},
            "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
        },
        "TrainingJobDefinition": {"StaticHyperParameters": {"kind": "good"}},
    }
    (directory / "tuning.json").write_text(json.dumps(request))
    flags = ["--strategy", "tpe", "--trials", "3", "--json", "--name", "from-file", "--channel", "code=train.py", "--metric", r"loss=loss=(\S+);"]
    command = ["--", "/usr/bin/python3", "/opt/ml/input/data/code/train.py"]
    done = run(house, "tune", "tuning.json", *flags, *command, cwd=directory)
    it = json.loads(done.stdout)
    assert (it["HyperParameterTuningJobStatus"], it["Definitions"][0]["Searcher"], len(it["Trials"])) == ("Completed", "tpe", 3)


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
