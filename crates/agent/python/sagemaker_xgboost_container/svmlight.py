"""libsvm: `label[:weight] [qid:N] index:value ...`, indices as they stand."""

from collections.abc import Iterable

import numpy
import xgboost
from scipy import sparse


def matrix(texts: Iterable[str]) -> xgboost.DMatrix:
    """Rows of all texts."""
    labels, weights, groups, rows, columns, values = [], [], [], [], [], []
    for line in (line.split("#", 1)[0].split() for text in texts for line in text.splitlines()):
        if not line:
            continue
        label, _, weight = line[0].partition(":")
        labels.append(float(label))
        if weight:
            weights.append(float(weight))
        for item in line[1:]:
            name, _, value = item.partition(":")
            if name == "qid":
                groups.append(int(value))
                continue
            rows.append(len(labels) - 1)
            columns.append(int(name))
            values.append(float(value))
    shape = (len(labels), max(columns, default=-1) + 1)
    found = xgboost.DMatrix(
        sparse.csr_matrix((values, (rows, columns)), shape=shape, dtype=numpy.float32), label=labels
    )
    if len(weights) == len(labels):
        found.set_weight(weights)
    if len(groups) == len(labels) and groups:
        changes = numpy.flatnonzero(numpy.diff(groups)) + 1
        found.set_group(numpy.diff([0, *changes, len(groups)]).tolist())
    return found
