"""Metrics: regexes over every line of every host, the last value each."""

import pytest

# Lines, metric definitions, and what is found.
CASES = {
    "the last one counts": (["loss=1", "loss=0.5"], [("loss", r"loss=(\S+)")], {"loss": 0.5}),
    "anywhere in a line": (["epoch 1, loss=2 and so on"], [("loss", r"loss=(\S+)")], {"loss": 2}),
    "several per line": (
        ["[3]\tt:1.5\tv:2.5"],
        [("t", r".*#011t:(\S+)"), ("v", r".*#011v:(\S+)")],
        {"t": 1.5, "v": 2.5},
    ),
    "exponents and signs": (["a=-1e-3 b=+2.5E2"], [("a", r"a=(\S+)"), ("b", r"b=(\S+)")], {"a": -0.001, "b": 250}),
    "look-around": (["val_loss=3", "loss=4"], [("loss", r"(?<!_)loss=([0-9.]+)")], {"loss": 4}),
    "no number is no value": (
        ["loss=nothing", "loss=7"],
        [("loss", r"loss=(\S+)"), ("other", r"other=(\S+)")],
        {"loss": 7},
    ),
    "a number and a comma": (["loss=1.5, next"], [("loss", r"loss=([0-9.]+)")], {"loss": 1.5}),
}


@pytest.mark.parametrize("lines, definitions, expected", CASES.values(), ids=CASES)
def test_found(jobs, lines, definitions, expected):
    printed = "\n".join(lines).replace("\t", r"\t")
    name = jobs.script(f"printf '%b\\n' '{printed}'", metrics=definitions)
    jobs.completed(name)
    assert jobs.metrics(name) == pytest.approx(expected)


def test_stderr_counts_too(jobs):
    name = jobs.script("echo loss=3 >&2", metrics=[("loss", r"loss=(\S+)")])
    jobs.completed(name)
    assert jobs.metrics(name) == {"loss": 3}


def test_of_several_hosts_the_latest_line_counts(jobs):
    script = """
    echo first=1
    if [ "$(hostname)" = algo-2 ]; then sleep 4; echo loss=2; else echo loss=1; fi
    """
    name = jobs.script(script, instances=2, metrics=[("loss", r"loss=(\S+)"), ("first", r"first=(\S+)")])
    jobs.completed(name)
    assert jobs.metrics(name) == {"loss": 2, "first": 1}


def test_a_regex_that_does_not_parse_is_refused_at_creation(jobs):
    with pytest.raises(jobs.sagemaker.exceptions.ClientError) as error:
        jobs.script("true", metrics=[("loss", "loss=(")])
    answer = error.value.response["Error"]
    assert answer["Code"] == "ValidationException" and "egex" in answer["Message"], answer


def test_a_regex_that_never_ends_ends(jobs):
    """Catastrophic backtracking costs that metric its value and nobody else anything."""
    name = jobs.script(
        "echo loss=1 $(yes a | head -40 | tr -d '\\n')b", metrics=[("bad", r"(?=(a+)+c)(x)"), ("loss", r"loss=(\S+)")]
    )
    jobs.completed(name)
    assert jobs.metrics(name) == {"loss": 1}
