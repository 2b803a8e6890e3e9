"""Tensors, scalars and histograms as TensorFlow's `Event`, and back."""

import math
import re
import struct
from typing import NamedTuple

import numpy as np

from smdebug.core import protobuf as pb
from smdebug.core.modes import MODE_PLUGIN_NAME, MODE_STEP_PLUGIN_NAME, ModeKeys
from smdebug.exceptions import SMDebugTypeError, SMDebugValueError

#: numpy's name of a type, and TensorFlow's number of it.
_NUMBERS = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}
_TYPES = {number: np.dtype(name) for name, number in _NUMBERS.items()}
_BFLOAT16 = 14
_NO_TAG = re.compile(r"[^-/\w\.]")


class Record(NamedTuple):
    """A tensor of an event file; `step` is the global one."""

    name: str
    step: int
    value: np.ndarray
    mode: ModeKeys
    mode_step: int


def _shape(name: str, shape: tuple[int, ...]) -> bytes:
    sizes = (pb.whole(1, size) + pb.text(2, f"{name}_{size}") for size in shape)
    return b"".join(pb.content(2, size) for size in sizes)


def _tensor(name: str, value: np.ndarray) -> bytes:
    shape = pb.content(2, _shape(name, value.shape))
    if value.dtype.kind in "UOS":
        texts = (text.decode() if isinstance(text, bytes) else str(text) for text in value.ravel())
        return shape + b"".join(pb.text(8, text) for text in texts)
    number = _NUMBERS.get(value.dtype.name)
    if number is None:
        raise SMDebugTypeError(f"Numpy Datatype: {value.dtype} is currently not supported")
    # In memory it may lie in any order of bytes and dimensions.
    raw = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
    return pb.whole(1, number) + shape + pb.content(4, raw.tobytes())


def _event(summary_value: bytes, step: int, wall_time: float) -> bytes:
    step = pb.whole(2, step) if step else b""
    return pb.double(1, wall_time) + step + pb.content(5, pb.content(1, summary_value))


def tensor_event(name: str, value: np.ndarray, step: int, mode: ModeKeys, mode_step: int, wall_time: float) -> bytes:
    """A tensor."""
    plugins = ((MODE_STEP_PLUGIN_NAME, mode_step), (MODE_PLUGIN_NAME, mode.value))
    metadata = b"".join(pb.content(1, pb.text(1, name) + pb.text(2, str(value))) for name, value in plugins)
    summary = pb.text(1, name) + pb.content(8, _tensor(name, value)) + pb.content(9, metadata)
    return _event(summary, step, wall_time)


def _tag(name: str) -> str:
    return _NO_TAG.sub("_", name).lstrip("/")


def version_event(wall_time: float) -> bytes:
    """What TensorBoard's files begin with."""
    return pb.double(1, wall_time) + pb.text(3, "brain.Event:2")


def scalar_event(name: str, value: float, step: int, wall_time: float) -> bytes:
    """A scalar for TensorBoard."""
    return _event(pb.text(1, _tag(name)) + pb.single(2, value), step, wall_time)


def histogram_event(name: str, values: np.ndarray, step: int, wall_time: float, bins: int = 64) -> bytes:
    """A histogram for TensorBoard: of equal widths from the least to the greatest value.

    Raises SMDebugValueError where there is no finite value.
    """
    values = values.astype(np.float64).ravel()
    values = values[np.isfinite(values)]
    if not values.size:
        raise SMDebugValueError(f"{name} has no finite value")
    counts, limits = np.histogram(values, bins)
    # Only right limits are stored: an empty bucket has the first left one.
    counts = np.concatenate(([0.0], counts))
    numbers = (values.min(), values.max(), float(values.size), values.sum(), np.dot(values, values))
    histogram = b"".join(pb.double(1 + field, number) for field, number in enumerate(numbers))
    histogram += pb.content(6, limits.astype("<f8").tobytes()) + pb.content(7, counts.astype("<f8").tobytes())
    return _event(pb.text(1, _tag(name)) + pb.content(5, histogram), step, wall_time)


def _read_shape(data: bytes) -> list[int]:
    shape = []
    for field, _, value in pb.fields(data):
        if field == 2:
            sizes = [pb.signed(size) for number, _, size in pb.fields(value) if number == 1]
            shape.append(sizes[-1] if sizes else 0)
    return shape


def _read_tensor(name: str, data: bytes) -> np.ndarray:
    number, shape, raw, texts = 0, [], b"", []
    for field, _, value in pb.fields(data):
        if field == 1:
            number = value
        elif field == 2:
            shape = _read_shape(value)
        elif field == 4:
            raw = value
        elif field == 8:
            texts.append(value.decode(errors="replace"))
    if texts:
        return np.array(texts, dtype=str)
    if any(size < 0 for size in shape):
        raise SMDebugValueError(f"{name}: a size of {shape} is negative")
    count = math.prod(shape)
    if number == _BFLOAT16:
        if len(raw) != count * 2:
            raise SMDebugValueError(f"{name}: {len(raw)} bytes are no tensor of shape {shape} of bfloat16")
        upper = np.frombuffer(raw, "<u2").astype("<u4")
        return (upper << 16).view("<f4").reshape(shape)
    dtype = _TYPES.get(number)
    if dtype is None:
        raise SMDebugTypeError(f"{name}: TensorFlow's type {number} is not supported")
    if len(raw) != count * dtype.itemsize:
        raise SMDebugValueError(f"{name}: {len(raw)} bytes are no tensor of shape {shape} of {dtype}")
    return np.frombuffer(raw, dtype.newbyteorder("<")).reshape(shape).astype(dtype)


def _read_modes(metadata: bytes, step: int) -> tuple[ModeKeys, int]:
    mode, mode_step = ModeKeys.GLOBAL, step
    for field, _, plugin in pb.fields(metadata):
        if field == 1:
            parts = {number: part.decode() for number, _, part in pb.fields(plugin)}
            if parts.get(1) == MODE_STEP_PLUGIN_NAME:
                mode_step = int(parts.get(2, step))
            elif parts.get(1) == MODE_PLUGIN_NAME:
                mode = ModeKeys(int(parts.get(2, ModeKeys.GLOBAL.value)))
    return mode, mode_step


def read_event(payload: bytes) -> list[Record]:
    """The tensors of an event.

    Raises SMDebugValueError or SMDebugTypeError where the bytes are none.
    """
    found = []
    try:
        step, summaries = 0, []
        for field, _, value in pb.fields(payload):
            if field == 2:
                step = pb.signed(value)
            elif field == 5:
                summaries.append(value)
        for summary in summaries:
            for field, _, value in pb.fields(summary):
                parts = {number: part for number, _, part in pb.fields(value)} if field == 1 else {}
                if 8 in parts:
                    name = parts.get(1, b"").decode()
                    mode, mode_step = _read_modes(parts.get(9, b""), step)
                    found.append(Record(name, step, _read_tensor(name, parts[8]), mode, mode_step))
    except (ValueError, AttributeError, TypeError, struct.error) as error:
        if isinstance(error, (SMDebugValueError, SMDebugTypeError)):
            raise
        raise SMDebugValueError(f"no event of TensorFlow: {error}") from error
    return found
