"""Bodies of requests as a `DMatrix`, for scripts that have their functions of serving beside
those of training.
"""

import io
import json

import numpy
import xgboost

from sagemaker_xgboost_container import recordio, svmlight
from sagemaker_xgboost_container.data_utils import CSV, LIBSVM, RECORDIO_PROTOBUF, get_content_type


def csv_to_dmatrix(string_like: str | bytes, dtype: type = numpy.float32) -> xgboost.DMatrix:
    """Rows without a label."""
    text = _text(string_like)
    first = text.split("\n", 1)[0]
    delimiter = next((it for it in ",;\t|" if it in first), ",")
    return xgboost.DMatrix(numpy.genfromtxt(io.StringIO(text), dtype=dtype, delimiter=delimiter, ndmin=2))


def libsvm_to_dmatrix(string_like: str | bytes) -> xgboost.DMatrix:
    """Rows, each with a label."""
    return svmlight.matrix([_text(string_like)])


def recordio_protobuf_to_dmatrix(string_like: bytes) -> xgboost.DMatrix:
    """Records."""
    return recordio.matrix(string_like)


_DECODERS = {CSV: csv_to_dmatrix, LIBSVM: libsvm_to_dmatrix, RECORDIO_PROTOBUF: recordio_protobuf_to_dmatrix}


def decode(obj: str | bytes, content_type: str) -> xgboost.DMatrix:
    """The body as its content type says."""
    kind = get_content_type(content_type)
    if kind not in _DECODERS:
        raise ValueError(f"a body of {content_type} cannot be read; use one of {', '.join(_DECODERS)}")
    return _DECODERS[kind](obj)


def json_to_jsonlines(json_data: dict | str | bytes) -> bytes:
    """`{"predictions": [a, b]}` as a line for each of the list's items."""
    data = json_data if isinstance(json_data, dict) else json.loads(json_data)
    [items] = data.values()
    return "".join(json.dumps(item) + "\n" for item in items).encode()


def _text(string_like: str | bytes) -> str:
    return string_like.decode() if isinstance(string_like, bytes) else string_like
