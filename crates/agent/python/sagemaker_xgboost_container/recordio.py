"""RecordIO of SageMaker's protobuf records (`aialgs.data.Record`): dense and sparse rows of
numbers.
"""

import struct
from collections.abc import Iterator

import numpy
import xgboost
from scipy import sparse

from sagemaker_algorithm_toolkit import exceptions as exc

_MAGIC = 0xCED7230A
#: Field of `Value` for each kind of tensor, and what its numbers are.
_TENSORS = {2: "<f4", 3: "<f8", 7: None}


def matrix(content: bytes) -> xgboost.DMatrix:
    """Rows of all records."""
    labels, rows, columns, values, width = [], [], [], [], 0
    for record in _records(content):
        features, label = {}, {}
        for field, entry in _fields(record):
            if field in (1, 2):
                named = dict(_fields(entry))
                (features if field == 1 else label)[bytes(named.get(1, b"")).decode()] = _tensor(named[2])
        if "values" not in features:
            raise exc.UserError("a record has no features named values")
        numbers, keys, size = features["values"]
        keys = keys if len(keys) else numpy.arange(len(numbers))
        width = max(width, size, int(keys.max(initial=-1)) + 1)
        rows.extend([len(labels)] * len(numbers))
        columns.extend(keys)
        values.extend(numbers)
        labels.append(float(label["values"][0][0]) if "values" in label else numpy.nan)
    found = sparse.csr_matrix((values, (rows, columns)), shape=(len(labels), width), dtype=numpy.float32)
    return xgboost.DMatrix(found, label=None if numpy.isnan(labels).all() else labels)


def _records(content: bytes) -> Iterator[memoryview]:
    at, view = 0, memoryview(content)
    while at < len(view):
        if len(view) < at + 8:
            raise exc.UserError("a RecordIO file ends within a record's head")
        magic, head = struct.unpack_from("<II", view, at)
        length = head & 0x1FFFFFFF
        if magic != _MAGIC or head >> 29 or len(view) < at + 8 + length:
            raise exc.UserError("this is no RecordIO file, or it is cut")
        yield view[at + 8 : at + 8 + length]
        at += 8 + (length + 3) // 4 * 4


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    number, shift = 0, 0
    while True:
        byte = view[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return number, at


def _fields(view: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    at = 0
    while at < len(view):
        tag, at = _varint(view, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(view, at)
        else:
            if kind == 2:
                length, at = _varint(view, at)
            elif kind in (1, 5):
                length = 8 if kind == 1 else 4
            else:
                raise exc.UserError("a record is no protobuf message")
            value, at = view[at : at + length], at + length
        yield tag >> 3, value


def _tensor(view: memoryview) -> tuple[numpy.ndarray, numpy.ndarray, int]:
    """Numbers, their columns where the row is sparse, and the row's width as far as it is said."""
    for field, tensor in _fields(view):
        if field not in _TENSORS:
            continue
        numbers, keys, shape = [], [], []
        for member, value in _fields(tensor):
            if member == 1 and _TENSORS[field]:
                numbers.extend(numpy.frombuffer(value, _TENSORS[field]))
            else:
                {1: numbers, 2: keys, 3: shape}.get(member, []).extend(_whole(value))
        if field == 7:
            numbers = [number - (1 << 64) if number >> 63 else number for number in numbers]
        return numpy.asarray(numbers, numpy.float64), numpy.asarray(keys, numpy.int64), int(shape[-1]) if shape else 0
    raise exc.UserError("a record has something else than numbers")


def _whole(value: int | memoryview) -> list[int]:
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(number)
    return found
