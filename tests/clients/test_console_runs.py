"""Experiments, their runs, comparisons and costs in the console, in a real browser."""

import time

import pytest
from browser import PHONE, browsers
from house import eventually
from jobs import Jobs
from playwright.sync_api import expect

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def window():
    with browsers() as window:
        yield window


@pytest.fixture(scope="module")
def place(make_house):
    """An experiment with three runs of a program, and a training job that runs on two hosts."""
    house = make_house()
    sagemaker, metrics = house.client("sagemaker"), house.client("sagemaker-metrics")
    sagemaker.create_experiment(ExperimentName="digits", Description=EVIL)
    sagemaker.create_trial(TrialName="july", ExperimentName="digits")
    start = time.time() - 100
    for number, (rate, kind) in enumerate([(0.1, "tree"), (0.01, "tree"), (0.001, EVIL)]):
        name = f"run-{number}"
        parameters = {"rate": {"NumberValue": rate}, "kind": {"StringValue": kind}, "size": {"NumberValue": 3}}
        sagemaker.create_trial_component(
            TrialComponentName=name,
            Parameters=parameters,
            Status={"PrimaryStatus": "Completed"},
            Tags=[{"Key": "who", "Value": "ana" if number else "ben"}],
        )
        sagemaker.associate_trial_component(TrialComponentName=name, TrialName="july")
        points = [("loss", step, rate * step) for step in (10, 20, 30)] + [("epoch", 30, 1)]
        data = [{"MetricName": m, "Timestamp": str(int(start + s)), "Step": s, "Value": v} for m, s, v in points]
        metrics.batch_put_metrics(TrialComponentName=name, MetricData=data)
    jobs = Jobs(house)
    program = 'i=0; while true; do i=$((i + 1)); echo "loss=$i;"; sleep 0.1; done'
    going = jobs.script(
        program,
        instances=2,
        metrics=[("loss", r"loss=(\S+);")],
        name="going",
        ExperimentConfig={"ExperimentName": "digits", "TrialName": "july"},
        StoppingCondition={"MaxRuntimeInSeconds": 3600},
    )
    jobs.until(going, "Training")
    house.sagemaker, house.jobs, house.going = sagemaker, jobs, going
    return house


def names(page):
    return page.locator("#jobs tbody tr:not(.group) .name > a:first-child").all_inner_texts()


@pytest.mark.parametrize("phone", [False, True])
def test_pages_are_accessible_and_fit(window, place, phone):
    seen = window(place, dark=phone, **({"viewport": PHONE} if phone else {}))
    compare = f"/console/compare?run=run-0&run=run-2&run={place.going}"
    paths = ["experiments", "experiments/digits?group=tag:who", "cost?by=tag&since=all", "experiments?q=none"]
    for path in [*(f"/console/{path}" for path in paths), compare]:
        page = seen.go(path)
        page.wait_for_function("!document.querySelector('#theme').hidden")
        if path == compare:
            expect(page.locator("#charts canvas").first).to_be_visible()
        seen.is_accessible()
        seen.fits()
    seen.is_sound()


def test_a_table_of_runs_is_what_its_address_says(window, place):
    seen = window(place)
    page = seen.go("/console/experiments")
    expect(page.locator("#experiment-digits .runs")).to_have_text("4")
    page.get_by_role("link", name="digits", exact=True).click()
    expect(page.locator(".description")).to_have_text(EVIL)
    expect(page.locator("#matching")).to_contain_text("4 runs")
    # A job's run moves by itself.
    loss = page.locator(f"#run-{place.going}-aws-training-job td.metric")
    before = loss.inner_text()
    expect(loss).not_to_have_text(before)
    page.get_by_role("link", name="rate").click()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("rate")
    assert names(page)[:3] == ["run-2", "run-1", "run-0"]
    page.locator("#filter summary").click()
    page.get_by_label("Column", exact=True).select_option("param:rate")
    page.get_by_label("Comparison").select_option("lt")
    page.get_by_label("Value", exact=True).fill("0.05")
    page.get_by_role("button", name="Add", exact=True).last.click()
    expect(page.locator(".filter")).to_contain_text("rate < 0.05")
    assert names(page) == ["run-2", "run-1"]
    page.get_by_label("Group by").select_option("tag:who")
    expect(page.locator("tr.group")).to_contain_text("ana")
    page.locator("#choose summary").click()
    page.get_by_label("size", exact=True).check()
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("#jobs thead")).to_contain_text("size")
    # Another browser sees the same by the address alone.
    other = window(place)
    assert names(other.go(page.url.removeprefix(seen.base))) == ["run-2", "run-1"]
    page.locator(".filter").click()
    expect(page.locator("#matching")).to_contain_text("4 runs")
    assert len(names(seen.go("/console/experiments/digits?q=run-"))) == 3
    seen.is_sound()


def test_runs_beside_each_other(window, place):
    seen = window(place)
    page = seen.go("/console/experiments/digits?sort=name&order=ascending")
    for name in ["run-0", "run-1", place.going]:
        page.get_by_label(f"Choose {name}", exact=True).check()
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("h1")).to_have_text("3 runs compared")
    differing = page.locator("#beside tr.differs th")
    expect(differing.filter(has_text="rate")).to_be_visible()
    expect(page.locator("#beside tr", has=page.locator("th[title=size]"))).to_have_class("differs")
    # A line for each run, and for each host where they report the same.
    legend = page.locator("#charts .chart", has=page.locator("h3", has_text="loss")).locator(".legend")
    for name in ["run-0", "run-1", f"{place.going} algo-1", f"{place.going} algo-2"]:
        expect(legend.get_by_text(name, exact=True)).to_be_visible()
    for across in ["epoch", "at", "relative"]:
        page.locator("#chart-x").select_option(across)
        assert f"x={across}" in page.url
    expect(page.locator("#parallel canvas")).to_be_visible()
    page.get_by_role("link", name=f"Without {place.going}").click()
    expect(page.locator("h1")).to_have_text("2 runs compared")
    page.get_by_role("link", name="Only what differs").click()
    expect(page.locator("#beside")).not_to_contain_text("size")
    seen.is_sound()


def test_notes_tags_and_what_is_done_with_runs(window, place):
    seen = window(place)
    page = seen.go("/console/compare?run=run-1")
    page.locator("#about summary").click()
    page.get_by_label("Display name").fill("the-good-one")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("h1")).to_have_text("the-good-one")
    page.locator("#about summary").click()
    page.get_by_label("Key of a tag").fill("stage")
    page.get_by_label("Value of the tag").fill("gold")
    page.get_by_role("button", name="Add", exact=True).click()
    page.locator("#about summary").click()
    expect(page.locator(".taglist")).to_contain_text("stage: gold")
    described = place.sagemaker.describe_trial_component(TrialComponentName="run-1")
    assert described["DisplayName"] == "the-good-one"
    page = seen.go("/console/experiments/digits")
    for name in [place.going, "run-0"]:
        page.get_by_label(f"Choose {name}", exact=True).check()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete 2 runs").click()
    # What runs is not deleted, and the page contains why.
    expect(page.locator(".chosen")).to_contain_text("stop it first")
    page.get_by_role("link", name="Back to the runs").click()
    expect(page.locator("#matching")).to_contain_text("3 runs")
    page.get_by_label(f"Choose {place.going}", exact=True).check()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Stop the run").click()
    eventually(lambda: place.jobs.describe(place.going)["TrainingJobStatus"] == "Stopped")
    expect(page.locator(f"#run-{place.going}-aws-training-job .badge")).to_have_text("Stopped")
    # Another site's form stops and deletes nothing.
    for headers in ({}, {"origin": "http://elsewhere.example"}):
        form = {"do": "delete", "sure": "yes", "run": "run-2"}
        address = f"{seen.base}/console/experiments/digits/runs"
        assert page.request.post(address, form=form, headers=headers).status == 403
    page = seen.go("/console/cost?by=experiment")
    expect(page.locator("#jobs tbody tr")).to_contain_text("digits")
    expect(page.locator("#days rect")).to_have_count(1)
    page.get_by_role("link", name="Training job", exact=True).click()
    expect(page.get_by_role("link", name=place.going, exact=True)).to_be_visible()
    seen.is_sound()


def test_what_watches_by_itself(window, place):
    seen = window(place)
    page = seen.go("/console/alarms")
    expect(page.get_by_role("heading", name="Nothing is watched yet")).to_be_visible()
    place.client("cloudwatch").put_metric_alarm(
        AlarmName=EVIL,
        Namespace="Heat",
        MetricName="loss",
        Statistic="Average",
        Period=60,
        EvaluationPeriods=1,
        Threshold=0.5,
        ComparisonOperator="GreaterThanThreshold",
        TreatMissingData="breaching",
    )
    place.client("budgets").create_budget(
        AccountId="123456789012",
        Budget={
            "BudgetName": "hours",
            "BudgetLimit": {"Amount": "0.0001", "Unit": "Hrs"},
            "TimeUnit": "MONTHLY",
            "BudgetType": "USAGE",
        },
    )
    sns = place.client("sns")
    topic = sns.create_topic(Name="owners")["TopicArn"]
    # No server listens there, so the question whether it wants messages is not delivered.
    sns.subscribe(TopicArn=topic, Protocol="http", Endpoint="http://127.0.0.1:9/hook")
    line = page.locator("#alarms tbody tr")
    expect(line).to_contain_text("Average of loss > 0.5 in 1 m 00 s")
    expect(line).to_contain_text(EVIL)
    expect(line.locator(".badge").first).to_have_text("Alarm")
    expect(page.locator("#budgets tbody tr .badge")).to_have_text("Spent")
    sent = page.locator("#notifications tbody tr")
    expect(sent).to_contain_text("http http://127.0.0.1:9/hook")
    expect(sent.locator(".badge").first).to_have_text("Pending")
    seen.is_accessible()
    seen.fits()
    seen.is_sound()
