"""`shoal.tuner` as a Python program uses it."""

import math
import re
import threading
from pathlib import Path

import pytest
from shoal.tuner import Study, categorical, continuous, integer, strategies

SPACE = {
    "lr": continuous(1e-5, 1.0, "Logarithmic"),
    "layers": integer(1, 8),
    "width": categorical([64, 128, True, "auto"]),
    "opt": categorical(["sgd", "adam"]),
    "momentum": continuous(0.0, 0.999, "ReverseLogarithmic", when={"opt": ["sgd"]}),
}


def loss(config):
    return (math.log10(config["lr"]) + 2) ** 2 + abs(config["layers"] - 3) + (config["opt"] == "sgd")


def test_a_search_finds_something_good():
    study = Study(SPACE, searcher="bayesian", seed=7)
    for number in range(30):
        trial = study.ask()
        assert trial.id == number and trial.start == 0 and trial.to is None
        assert isinstance(trial.config["layers"], int) and trial.config["width"] in (64, 128, True, "auto")
        assert ("momentum" in trial.config) == (trial.config["opt"] == "sgd")
        study.tell(trial, loss(trial.config))
    assert len(study) == 30 and study.best.value == min(loss(result.config) for result in study) < 1.0
    assert [result.id for result in study.front] == [study.best.id]
    assert abs(sum(study.importance().values()) - 1) < 1e-9
    assert study.importance()["lr"] > study.importance()["width"]
    assert study.not_improving < 30 and not study.converged
    assert repr(study).startswith("<Study of 30 trials, best ")


def test_a_snapshot_goes_on_as_the_other():
    one = Study(SPACE, searcher="bayesian", seed=3)
    for _ in range(12):
        trial = one.ask()
        one.tell(trial, loss(trial.config))
    pending = one.ask()
    other = Study.restore(one.snapshot())
    for _ in range(4):
        assert one.ask() == other.ask()
    for study in (one, other):
        study.tell(pending, 0.5)
    assert one.ask() == other.ask()
    assert one.trials == other.trials
    with pytest.raises(ValueError, match="no snapshot of a study"):
        Study.restore(b"{}")


def test_bad_trials_end_early_and_paused_ones_come_back():
    study = Study(SPACE, searcher="random", scheduler={"kind": "asha", "max_resource": 9}, seed=1, max_trials=27)
    done, resumed = {}, 0
    while trial := study.ask():
        resumed += trial.start > 0
        assert trial.start == done.get(trial.id, 0)
        for resource in range(trial.start + 1, 10):
            done[trial.id] = resource
            if study.report(trial, resource, loss(trial.config) + 1 / resource) != "continue":
                break
    assert study.finished and len(done) == 27
    assert resumed > 0 and sum(done.values()) < 27 * 9 / 2
    states = [result.state for result in study]
    assert "completed" in states and "paused" in states
    best = min(study, key=lambda result: loss(result.config))
    assert done[best.id] == 9 and study.best.id == best.id
    assert best.reports[0] == (1, loss(best.config) + 1)


def test_failures_stops_and_several_objectives():
    study = Study(SPACE, searcher="random", objectives=["maximize", "minimize"])
    for value in (None, [math.nan, 1.0], [3.0, 2.0], [2.0, 1.0], [1.0, 5.0]):
        study.tell(study.ask(), value)
    assert [result.state for result in study] == ["failed", "failed", "completed", "completed", "completed"]
    assert [result.values for result in study.front] == [[3.0, 2.0], [2.0, 1.0]]
    trial = study.ask()
    study.report(trial, 1, 0.25)
    study.stop(trial)
    assert (study[trial.id].state, study[trial.id].value) == ("stopped", 0.25)
    with pytest.raises(ValueError, match="1 values for 2 objectives"):
        study.tell(study.ask(), 1.0)


def test_earlier_trials_of_another_space():
    study = Study({"lr": continuous(1e-4, 1e-2), "opt": categorical(["adam"])}, searcher="random")
    fine = {"lr": 1e-3, "opt": "adam", "layers": 3}
    assert study.warm_start([(fine, 0.5), ({"lr": 0.5, "opt": "adam"}, 0.1), ({"opt": "adam"}, 0.1)]) == [
        (1, "parameter lr: 0.5 is not in its range"),
        (2, "parameter lr: has no value in the configuration"),
    ]
    assert [result.injected for result in study] == [True] and study.best is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Study({"x": continuous(0, 1, "Logarithmic")}),
            "parameter x: logarithmic scaling needs values above 0, and its minimum is 0",
        ),
        (lambda: Study({"x": integer(1, 2, when={"y": [1]})}), "parameter x: its parent y does not exist"),
        (lambda: Study(SPACE, searcher="newton"), 'there is no searcher "newton"; there are: random'),
        (lambda: Study(SPACE, strategy="asha", searcher="random"), "give a strategy, or a searcher"),
        (lambda: Study(SPACE, objectives="best"), 'objectives: "best" is neither "minimize" nor "maximize"'),
        (lambda: Study({"x": categorical([object()])}), "not a number, string, boolean, list or mapping"),
        (lambda: continuous(0, 1, when={}), "when must name one parent"),
        (lambda: Study(SPACE).tell(4, 1.0), "there is no trial 4"),
        (lambda: Study(SPACE).report(0, 0, 1.0), "resource counts finished units"),
    ],
    ids=lambda it: it if isinstance(it, str) else "mistake",
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_every_name_makes_a_study():
    for name, what in strategies().items():
        space = {"c": categorical(["a", "b", "c"])} if name == "grid" else SPACE
        study = Study(space, strategy=name, max_resource=9, min_resource=1, eta=3)
        assert study.ask() is not None and what, name


def test_threads_share_a_study():
    study = Study(SPACE, searcher="bayesian", seed=2)

    def work():
        for _ in range(8):
            trial = study.ask()
            study.tell(trial, loss(trial.config))

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert [result.state for result in study] == ["completed"] * 32


@pytest.mark.parametrize(("page", "trials"), [("py/README.md", [20]), ("docs/tuning.md", [15, 30])])
def test_the_pages_programs_work(page, trials):
    text = (Path(__file__).parents[2] / page).read_text()
    programs = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(programs) == len(trials)
    for program, expected in zip(programs, trials):
        names = {}
        exec(program, names)
        assert len(names["study"]) == expected
