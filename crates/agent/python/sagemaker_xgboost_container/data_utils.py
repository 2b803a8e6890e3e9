"""Files of a channel as a `DMatrix`: CSV with the label first, libsvm, Parquet with the label
first, RecordIO of SageMaker's protobuf.
"""

import csv
import logging
import os
from pathlib import Path

import numpy
import xgboost

from sagemaker_algorithm_toolkit import exceptions as exc
from sagemaker_xgboost_container import recordio, svmlight

CSV = "csv"
LIBSVM = "libsvm"
PARQUET = "parquet"
RECORDIO_PROTOBUF = "recordio-protobuf"

_NAMES = {
    "csv": CSV,
    "text/csv": CSV,
    "libsvm": LIBSVM,
    "text/libsvm": LIBSVM,
    "text/x-libsvm": LIBSVM,
    "parquet": PARQUET,
    "application/x-parquet": PARQUET,
    "recordio-protobuf": RECORDIO_PROTOBUF,
    "application/x-recordio-protobuf": RECORDIO_PROTOBUF,
}


def get_content_type(content_type_cfg_val: str | None) -> str:
    """One of the names above; without any it is libsvm. A CSV's `label_size` must be 1."""
    if content_type_cfg_val is None:
        return LIBSVM
    name, *parameters = (part.strip().lower() for part in content_type_cfg_val.split(";"))
    if name not in _NAMES:
        raise exc.UserError(f"{content_type_cfg_val} is not an accepted ContentType: {', '.join(sorted(_NAMES))}.")
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if _NAMES[name] == CSV and key == "label_size" and value != "1":
            raise exc.UserError(f"{content_type_cfg_val} is not an accepted csv ContentType: label_size must be 1.")
    return _NAMES[name]


def get_dmatrix(
    data_path: str, content_type: str, csv_weights: int = 0, is_pipe: bool = False
) -> xgboost.DMatrix | None:
    """All files below `data_path`, or that file. `None` where there is none, as an instance
    without data takes no part. With `csv_weights` 1 the second column of a CSV is the rows'
    weights.
    """
    if is_pipe:
        raise exc.UserError("there are no pipes: channels are files; use the input mode File or FastFile")
    files = _files(data_path)
    if not files:
        logging.info("There is no data in %s", data_path)
        return None
    kind = get_content_type(content_type)
    try:
        if kind == CSV:
            return _csv(files, bool(int(csv_weights)))
        if kind == PARQUET:
            return _parquet(files)
        if kind == RECORDIO_PROTOBUF:
            return recordio.matrix(b"".join(path.read_bytes() for path in files))
        return svmlight.matrix(path.read_text() for path in files)
    except exc.UserError:
        raise
    except Exception as error:
        raise exc.UserError(f"Failed to load {kind} data from {data_path}: {error}", caused_by=error) from error


def get_size(data_path: str, is_pipe: bool = False) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in _files(data_path))


def _files(data_path: str) -> list[Path]:
    path = Path(data_path)
    if path.is_file():
        return [path]
    found = [Path(directory) / name for directory, _, names in os.walk(path, followlinks=True) for name in names]
    return sorted(file for file in found if not file.name.startswith((".", "_")) and file.stat().st_size)


def _csv(files: list[Path], has_weights: bool) -> xgboost.DMatrix:
    import pandas

    with files[0].open(newline="") as file:
        sample = file.readline()
    try:
        delimiter = csv.Sniffer().sniff(sample, delimiters=",;\t| ").delimiter
    except csv.Error:
        delimiter = ","
    if any(_is_word(cell) for cell in sample.strip().split(delimiter)):
        raise exc.UserError(
            f"{files[0].name} begins with a header or has text in it; leave out the header and give numbers: {sample.strip()[:200]}"
        )
    frames = [pandas.read_csv(path, sep=delimiter, header=None, dtype="float32") for path in files]
    table = pandas.concat(frames).to_numpy()
    first = 2 if has_weights else 1
    return xgboost.DMatrix(table[:, first:], label=table[:, 0], weight=table[:, 1] if has_weights else None)


def _is_word(cell: str) -> bool:
    try:
        float(cell.strip().strip('"') or "nan")
    except ValueError:
        return True
    return False


def _parquet(files: list[Path]) -> xgboost.DMatrix:
    import pandas

    table = pandas.concat(pandas.read_parquet(path) for path in files).to_numpy(dtype=numpy.float32)
    return xgboost.DMatrix(table[:, 1:], label=table[:, 0])
