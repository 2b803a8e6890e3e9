"""Writes the files of one step of a worker: tensors and their index, or TensorBoard's summaries."""

import json
import os
import time

import numpy as np

from smdebug.core import events, layout
from smdebug.core.logger import get_logger
from smdebug.core.modes import ModeKeys
from smdebug.core.reductions import make_numpy_array
from smdebug.core.tfrecord import record
from smdebug.exceptions import SMDebugValueError

logger = get_logger()
#: How much is kept in memory before it is written.
_BUFFERED = 1 << 20


class FileWriter:
    """`wtype` "events" writes tensors, with an index, "tensorboard" what TensorBoard shows.

    Nothing is there under its name before `close`; the index is last, so that what it names is
    there.
    """

    def __init__(
        self, trial_dir, worker, step=0, wtype="events", mode=ModeKeys.GLOBAL, write_checksum=False, **_ignored
    ):
        if wtype not in ("events", "tensorboard"):
            raise SMDebugValueError(f"Writer type not supported {wtype}")
        self.trial_dir, self.worker, self.step, self.wtype, self.mode = trial_dir, worker, step, wtype, mode
        self._checksum = write_checksum or wtype == "tensorboard"
        if wtype == "events":
            self._name = layout.event_file(step, worker)
        else:
            self._name = layout.tensorboard_file(step, worker, mode)
        self._file = None
        self._parts, self._buffered, self._length = [], 0, 0
        self._index, self._shapes, self._meta = [], [], {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def name(self) -> str:
        """The file of events, when it is complete."""
        return os.path.join(self.trial_dir, self._name)

    def _append(self, payload: bytes) -> tuple[int, int]:
        framed = record(payload, self._checksum)
        at = self._length
        self._length += len(framed)
        self._parts.append(framed)
        self._buffered += len(framed)
        if self._buffered > _BUFFERED:
            self.flush()
        return at, len(framed)

    def flush(self) -> None:
        """Hands what is buffered to the operating system."""
        if not self._parts:
            return
        if self._file is None:
            os.makedirs(os.path.dirname(self.name()), exist_ok=True)
            self._file = open(f"{self.name()}.tmp", "wb")
        self._file.write(b"".join(self._parts))
        self._parts, self._buffered = [], 0

    def _tell_modes(self, mode: ModeKeys | None, mode_step: int | None) -> tuple[ModeKeys, int]:
        mode = ModeKeys.GLOBAL if mode is None else mode
        if not isinstance(mode, ModeKeys):
            raise SMDebugValueError(f"mode can be one of {', '.join(f'ModeKeys.{one.name}' for one in ModeKeys)}")
        return mode, self.step if mode_step is None else mode_step

    def write_tensor(self, tdata, tname, write_index=True, mode=ModeKeys.GLOBAL, mode_step=None, timestamp=None):
        """A tensor of this step."""
        mode, mode_step = self._tell_modes(mode, mode_step)
        value = make_numpy_array(tdata)
        event = events.tensor_event(tname, value, self.step, mode, mode_step, timestamp or time.time())
        at, length = self._append(event)
        if write_index:
            self._meta.setdefault("mode", mode.name)
            self._meta.setdefault("mode_step", mode_step)
            self._meta.setdefault("event_file_name", self._name)
            self._index.append({"tensorname": tname, "start_idx": at, "length": length})

    def write_shape(self, name, shape, mode=ModeKeys.GLOBAL, mode_step=None, original_name=None):
        """The shape of a tensor of this step, with or without its value."""
        mode, mode_step = self._tell_modes(mode, mode_step)
        self._meta.setdefault("mode", mode.name)
        self._meta.setdefault("mode_step", mode_step)
        self._shapes.append({"tensorname": name, "originalname": original_name or name, "shape": list(shape)})

    def _begin_summaries(self) -> float:
        now = time.time()
        if not self._length:
            self._append(events.version_event(now))
        return now

    def write_scalar_summary(self, name, value, global_step, timestamp=None):
        """A scalar for TensorBoard."""
        now = self._begin_summaries()
        number = float(np.asarray(make_numpy_array(value)).reshape(()))
        self._append(events.scalar_event(name, number, global_step, timestamp or now))

    def write_histogram_summary(self, tdata, tname, global_step, bins=64):
        """A histogram for TensorBoard."""
        now = self._begin_summaries()
        bins = bins if isinstance(bins, int) else 64
        try:
            self._append(events.histogram_event(tname, make_numpy_array(tdata), global_step, now, bins))
        except SMDebugValueError as error:
            logger.warning(f"Unable to write histogram {tname} at {global_step}: {error}")

    def close(self) -> None:
        """Gives the files their names."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None
            os.replace(f"{self.name()}.tmp", self.name())
        if self._index or self._shapes:
            index = {"meta": self._meta, "tensor_payload": self._index, "shape_payload": self._shapes}
            path = os.path.join(self.trial_dir, layout.index_file(self.step, self.worker))
            layout.write_whole(path, json.dumps(index).encode())
            self._index, self._shapes = [], []
