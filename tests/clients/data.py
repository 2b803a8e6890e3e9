"""Data for training: small tables whose columns have few distinct values, so that one and three
instances cut alike; and real ones.
"""

import csv
import os
import pathlib
import random

import pytest

SHARED = pathlib.Path(os.environ.get("SHOAL_SHARED") or pathlib.Path(__file__).parents[3] / "shared") / "data"


def rows(count, seed):
    """Label first. Two features decide, one is noise; 31 values each."""
    numbers = random.Random(seed)
    made = []
    for _ in range(count):
        x = [numbers.randint(0, 30) / 10 for _ in range(3)]
        made.append([int(x[0] + x[1] + numbers.gauss(0, 0.4) > 3), *x])
    return made


def as_csv(rows):
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def as_libsvm(rows):
    return "".join(f"{row[0]} " + " ".join(f"{i}:{value}" for i, value in enumerate(row[1:])) + "\n" for row in rows)


def auc(rows, scores):
    """The chance that a positive row scores above a negative one, by counting all pairs."""
    positive = [score for score, row in zip(scores, rows) if row[0]]
    negative = [score for score, row in zip(scores, rows) if not row[0]]
    wins = sum((p > n) + (p == n) / 2 for p in positive for n in negative)
    return wins / len(positive) / len(negative)


def titanic(part):
    """The course's `train` or `test` as numbers, label first; a missing age is 28, the median."""
    path = SHARED / f"titanic/titanic_{part}.csv"
    if not path.exists():
        pytest.skip(f"needs ../shared/data (or its parent named in SHOAL_SHARED): there is no {path}")
    with open(path) as file:
        return [_passenger(row) for row in csv.DictReader(file)]


def mnist():
    """The four files of handwritten digits, by name."""
    directory = SHARED / "mnist"
    if not directory.exists():
        pytest.skip(f"needs ../shared/data (or its parent named in SHOAL_SHARED): there is no {directory}")
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def _passenger(row):
    port = {"C": 0, "Q": 1, "S": 2}.get(row["Embarked"], 2)
    numbers = [
        row["Pclass"],
        int(row["Sex"] == "male"),
        row["Age"] or 28,
        row["SibSp"],
        row["Parch"],
        row["Fare"],
        port,
    ]
    return [int(row["Survived"]), *(float(number) for number in numbers)]
