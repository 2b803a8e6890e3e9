"""Arrays to and from bytes and texts of a content type."""

import io
import json
from typing import Any

import numpy

from sagemaker_containers.beta.framework import content_types, errors


def encode(array_like: Any, content_type: str) -> bytes | str:
    """The array as `content_type` has it."""
    array = array_like if isinstance(array_like, str) else numpy.asarray(array_like)
    if content_type == content_types.JSON:
        return json.dumps(array if isinstance(array, str) else array.tolist())
    if content_type == content_types.CSV:
        return "\n".join(",".join(map(str, numpy.atleast_1d(row).tolist())) for row in numpy.atleast_1d(array)) + "\n"
    if content_type == content_types.NPY:
        buffer = io.BytesIO()
        numpy.save(buffer, array)
        return buffer.getvalue()
    raise errors.UnsupportedFormatError(content_type)


def decode(obj: bytes | str, content_type: str) -> numpy.ndarray:
    """The array that `obj` is."""
    text = obj.decode() if isinstance(obj, bytes) and content_type in content_types.UTF8_TYPES else obj
    if content_type == content_types.JSON:
        return numpy.array(json.loads(text))
    if content_type == content_types.CSV:
        return numpy.genfromtxt(io.StringIO(text), delimiter=",")
    if content_type == content_types.NPY:
        return numpy.load(io.BytesIO(obj), allow_pickle=False)
    raise errors.UnsupportedFormatError(content_type)
