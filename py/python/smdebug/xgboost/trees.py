"""The tree of a round as columns, as `Booster.trees_to_dataframe` has them."""

import re

import numpy as np

COLUMNS = ("Tree", "Node", "ID", "Feature", "Split", "Yes", "No", "Missing", "Gain", "Cover", "Category")
_NONE = float("nan")
_NODE = re.compile(r"\s*(\d+):(?:\[(.*?)\])?\s*(.*)")


def _row(tree: int, line: str) -> dict | None:
    found = _NODE.match(line)
    if not found:
        return None
    node, condition, rest = found.groups()
    numbers = dict(one.partition("=")[::2] for one in rest.split(",") if "=" in one)
    row = dict.fromkeys(COLUMNS, _NONE) | {"Tree": tree, "Node": int(node), "ID": f"{tree}-{node}"}
    row["Cover"] = float(numbers.get("cover", _NONE))
    if condition is None:
        return row | {"Feature": "Leaf", "Gain": float(numbers["leaf"])}
    feature, sign, bound = re.match(r"(.*?)(<|:|$)(.*)", condition).groups()
    row |= {"Feature": feature, "Gain": float(numbers.get("gain", _NONE))}
    row |= {name.title(): f"{tree}-{numbers[name]}" for name in ("yes", "no", "missing") if name in numbers}
    return row | ({"Split": float(bound)} if sign == "<" else {"Category": bound.strip("{}")})


def columns_of(dumps: list[str], first: int) -> dict:
    """Columns of the trees of these texts (with statistics), of which the first has this number."""
    rows = [_row(first + at, line) for at, text in enumerate(dumps) for line in text.splitlines()]
    rows = [row for row in rows if row is not None]
    return {name: np.array([row[name] for row in rows]) for name in COLUMNS}
