"""Tuning jobs in the console: the list, a page of one that runs, its end, and the way to its
trials and back.
"""

import json

import pytest
from browser import DESK, PHONE, browsers
from house import eventually
from playwright.sync_api import expect
from test_cli import run

PROGRAM = """
import json, time
given = json.load(open("/opt/ml/input/config/hyperparameters.json"))
rate, kind = float(given["rate"]), given["kind"]
for step in range(3):
    print(f"loss={rate / (step + 1)};", flush=True)
    time.sleep(0.1)
if kind == "<b>bad</b>":
    raise ValueError("no <i>luck</i>")
"""


def tune(house, directory, name, *flags, kinds="<b>bad</b>,good"):
    command = ["--", "/usr/bin/python3", "/opt/ml/input/data/code/train.py"]
    ranges = [
        "--range",
        "rate=0.1..1",
        "--choice",
        f"kind={kinds}",
        "--metric",
        r"loss=loss=(\S+);",
        "--minimize",
        "loss",
    ]
    run(house, "tune", "--name", name, "--channel", "code=train.py", *ranges, *flags, *command, cwd=directory)


@pytest.fixture(scope="module")
def place(house, jobs, tmp_path_factory):
    directory = tmp_path_factory.mktemp("console-tuning")
    (directory / "train.py").write_text(PROGRAM)
    tune(house, directory, "seen", "--strategy", '{"grid":{"points":3}}', "--parallel", "2")
    house.directory = directory
    return house


@pytest.mark.parametrize("viewport, dark", [(DESK, False), (PHONE, True)])
def test_a_tuning_job_that_is_over(place, viewport, dark):
    with browsers() as window:
        seen = window(place, dark=dark, viewport=viewport)
        page = seen.go("/console/tuning")
        expect(page.get_by_role("heading", name="Tuning jobs")).to_be_visible()
        seen.is_accessible()
        seen.fits()
        page.get_by_role("link", name="seen", exact=True).click()
        expect(page.locator("h1")).to_have_text("seen")
        expect(page.locator("#title")).to_contain_text("6, 3 failed")
        expect(page.locator("#best-table tbody tr")).to_have_count(3)
        expect(page.locator("#failed-table tbody tr")).to_have_count(3)
        expect(page.locator("#failed-table .detail").first).to_contain_text("ValueError: no <i>luck</i>")
        expect(page.locator("#picture path")).to_have_count(3)
        expect(page.locator("#parallel canvas")).to_be_visible()
        seen.is_accessible()
        seen.fits()
        trial = json.loads(run(place, "tuning", "show", "seen", "--json").stdout)["Trials"][0]["TrainingJobName"]
        page.locator(f"a[href='/console/jobs/{trial}']").last.click()
        expect(page.locator("h1")).to_have_text(trial)
        page.get_by_role("link", name="seen", exact=True).click()
        expect(page.locator("h1")).to_have_text("seen")
        seen.is_sound()


def test_one_that_runs_is_seen_running_and_stopped(place):
    # None fails: a tuning job whose first trials all fail ends by itself.
    tune(
        place,
        place.directory,
        "stopped-here",
        "--strategy",
        "random",
        "--trials",
        "200",
        "--detach",
        kinds="good,better",
    )
    with browsers() as window:
        seen = window(place)
        link = run(place, "console", "stopped-here").stdout.strip()
        seen.page.goto(link)
        expect(seen.page.locator("h1")).to_have_text("stopped-here")
        expect(seen.page.locator("#at-work-table tbody tr").first).to_be_visible()
        # Trials that end come in by themselves.
        expect(seen.page.locator("#best-table tbody tr").first).to_be_visible()
        # So do their lines in the pictures.
        expect(seen.page.locator("#rungs canvas")).to_be_visible()
        drawn = seen.page.locator("#study").get_attribute("data-drawn")
        expect(seen.page.locator("#study")).not_to_have_attribute("data-drawn", drawn)
        seen.page.get_by_role("button", name="Stop", exact=True).click()
        seen.page.get_by_role("button", name="Stop the tuning job").click()
        status = lambda: json.loads(run(place, "tuning", "show", "stopped-here", "--json").stdout)[
            "HyperParameterTuningJobStatus"
        ]
        eventually(lambda: status() == "Stopped")
        expect(seen.page.locator("#title .badge")).to_have_text("Stopped")
        seen.go("/console/tuning?q=nothing-like-it")
        expect(seen.page.get_by_text("Nothing matches")).to_be_visible()
        seen.is_sound()
