"""A run's tensors, as they come and afterwards."""

import json
import os
import re
import time
from bisect import bisect_left

from smdebug.analysis import refresh
from smdebug.core import layout
from smdebug.core.collection import Collection, CollectionKeys
from smdebug.core.collection_manager import CollectionManager
from smdebug.core.logger import get_logger
from smdebug.core.modes import ModeKeys
from smdebug.core.reductions import REDUCTIONS_PREFIX, reverse_reduction_tensor_name
from smdebug.core.tensor import Location, StepState, Tensor
from smdebug.exceptions import (
    IndexReaderException,
    MissingCollectionFiles,
    NoMoreData,
    StepUnavailable,
    TensorUnavailable,
)

#: Seconds between two tries to read a file that the index names.
_RETRY_S = 0.5
#: Looks in vain before a warning of what is waited for.
_LOOKS = 50


def _setting(name: str, default: float) -> float:
    return float(os.environ.get(name, default))


class Trial:
    """Steps, collections and tensors of a run. A step is complete when all workers have saved it,
    or when later ones are complete.
    """

    def __init__(self, name, source, range_steps=None, cache=False):
        self.name, self.path, self.cache, self.range_steps = name, source.path, cache, range_steps
        self.logger = get_logger()
        self._source = source
        self._tensors = {}
        self._mode_of, self._global_of = {}, {}
        self._workers_of, self._names_of, self._names_of_mode = {}, {}, {}
        self._read, self._behind = set(), None
        self.loaded_all_steps = False
        #: Off while a rule looks at a step.
        self.dynamic_refresh = True
        self.last_complete_step = -1
        #: How many incomplete steps are waited for; then half of them count as complete.
        self._window = int(_setting("SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW", 1000))
        self._end_delay = _setting("SMDEBUG_TRAINING_END_DELAY_REFRESH", 1)
        #: More workers than this are not waited for: those of other instances save elsewhere.
        self._most_workers = _setting("SHOAL_TRIAL_WORKERS", float("inf"))
        self._retries = int(_setting("SMDEBUG_MISSING_EVENT_FILE_RETRY_LIMIT", 100))
        self.collection_manager, self.worker_set, self.num_workers = None, set(), 0
        self._load_collections()
        self.refresh_data()

    def __repr__(self):
        return f"<Trial {self.name} at {self.path}: {len(self._tensors)} tensors, last step {self.last_complete_step}>"

    def __hash__(self):
        return hash((self.name, self.path))

    def __eq__(self, other):
        return isinstance(other, Trial) and (self.name, self.path) == (other.name, other.path)

    # Files.

    def _has_ended(self) -> bool:
        return self._source.has(layout.END_OF_JOB_FILENAME)

    def _load_collections(self) -> None:
        looks = 0
        while True:
            ended = self._has_ended()
            files = [name for name in self._source.list("collections") if layout.worker_of_collections(name)]
            if files:
                self.collection_manager = CollectionManager.load_from_string(self._source.read(files[0]).decode())
                self.num_workers = min(self.collection_manager.get_num_workers(), self._most_workers)
            if files and len(files) >= self.num_workers:
                break
            if ended:
                raise MissingCollectionFiles
            looks += 1
            if looks == _LOOKS:
                self.logger.warning(f"Waiting for the files of the training's collections in {self.path}collections")
            time.sleep(self._source.interval_s)
        self.worker_set = {layout.worker_of_collections(name) for name in files}

    def refresh_data(self) -> None:
        """Reads what the index has more."""
        for name in self._source.list("index", self._behind):
            if name in self._read:
                continue
            file = layout.parse_index_file(name)
            if file is None or not self._is_in_range(file.step):
                continue
            self._load_index(file, self._source.read(name))
            self._read.add(name)
        self._take_for_complete()
        # Of incomplete steps more files may come, and stand before some that are read.
        if self.last_complete_step >= 0:
            self._behind = layout.index_file(self.last_complete_step, "")

    def _is_in_range(self, step: int) -> bool:
        first, last = self.range_steps or (None, None)
        return (first is None or step >= first) and (last is None or step < last)

    def _load_index(self, file, text: bytes) -> None:
        try:
            index = json.loads(text)
            meta = index["meta"]
            mode, mode_step = ModeKeys[meta["mode"].strip()], int(meta["mode_step"])
            for one in index.get("tensor_payload") or ():
                location = Location(meta["event_file_name"], one["start_idx"], one["length"])
                self._add(file, one["tensorname"], mode, mode_step, location)
            for one in index.get("shape_payload") or ():
                tensor, saved = self._place(file, one["tensorname"], mode, mode_step)
                saved.shape, tensor.original_name = tuple(one["shape"]), one["originalname"]
        except (ValueError, KeyError, TypeError) as error:
            raise IndexReaderException(f"Empty/Corrupt Index File of step {file.step}: {error!r}") from error
        self._workers_of.setdefault(file.step, set()).add(file.worker)
        if len(self._workers_of[file.step]) >= self.num_workers:
            self.last_complete_step = max(self.last_complete_step, file.step)

    def _place(self, file, name, mode, mode_step):
        tensor = self._tensors.get(name)
        if tensor is None:
            tensor = self._tensors[name] = Tensor(name, self, self.cache)
        self._mode_of.setdefault(file.step, (mode, mode_step))
        if mode != ModeKeys.GLOBAL:
            self._global_of.setdefault(mode, {}).setdefault(mode_step, file.step)
            self._names_of_mode.setdefault(mode, set()).add(name)
        self._names_of.setdefault(file.step, set()).add(name)
        return tensor, tensor.at(mode, mode_step, file.worker)

    def _add(self, file, name, mode, mode_step, location) -> None:
        if REDUCTIONS_PREFIX in name:
            name, reduction, is_abs = reverse_reduction_tensor_name(name)
            self._place(file, name, mode, mode_step)[1].reductions[reduction, is_abs] = location
        else:
            self._place(file, name, mode, mode_step)[1].location = location

    def _take_for_complete(self) -> None:
        waiting = sorted(step for step in self._mode_of if step > self.last_complete_step)
        if len(waiting) > self._window:
            self.last_complete_step = waiting[self._window // 2]
            self.logger.info(
                f"More than {self._window} steps are incomplete: up to {self.last_complete_step} they count as they are"
            )

    def fetch(self, location: Location):
        """The tensor at this place."""
        # Not above: numpy and the format of events are not needed for names and steps.
        from smdebug.core.events import read_event
        from smdebug.core.tfrecord import records

        for left in range(self._retries, -1, -1):
            try:
                data = self._source.read(location.file, location.at, location.length)
                break
            except FileNotFoundError:
                if left == 0 or self.loaded_all_steps:
                    raise
                time.sleep(_RETRY_S)
        return read_event(next(records(data)))[0].value

    def maybe_refresh(self, name=None) -> None:
        """Looks for new files, unless all are read or this is off."""
        if self.loaded_all_steps or not self.dynamic_refresh:
            return
        ended = self._has_ended()
        self.refresh_data()
        if ended:
            # What was uploaded with the end may be listed a little later.
            if self.path.startswith("s3://"):
                time.sleep(self._end_delay)
                self.refresh_data()
            self.loaded_all_steps = True
            self.last_complete_step = max(self._mode_of, default=self.last_complete_step)

    # Tensors and collections.

    def tensor(self, tname) -> Tensor:
        """The tensor of that name."""
        if not self.has_tensor(tname):
            raise TensorUnavailable(tname)
        return self._tensors[tname]

    def has_tensor(self, tname) -> bool:
        """Whether the tensor was saved up to now."""
        if tname not in self._tensors:
            self.maybe_refresh()
        return tname in self._tensors

    def tensor_names(
        self, show_prefixed_tensors=False, *, step=None, mode=ModeKeys.GLOBAL, regex=None, collection=None
    ) -> list[str]:
        """Names of tensors: of a step, of a mode, that a pattern fits, or of a collection."""
        self.maybe_refresh()
        if regex is not None and collection is not None:
            raise ValueError("Only one of `regex` or `collection` can be passed to this method")
        if step is not None:
            names = self._names_of.get(self.global_step(mode, step), set())
        elif mode == ModeKeys.GLOBAL:
            names = set(self._tensors)
        else:
            names = self._names_of_mode.get(mode, set())
        if regex is not None:
            patterns = regex if isinstance(regex, list) else [regex]
            names = {name for name in names if any(re.search(pattern, name) for pattern in patterns)}
        if collection is not None:
            one = collection if isinstance(collection, Collection) else self.collection(collection)
            names = {name for name in names if one.matches(name)}
        if not names and (regex is not None or collection is not None):
            self.logger.warning(f"No tensors of {collection or regex} were saved")
        return sorted(names)

    def collections(self) -> dict:
        """The collections by name."""
        return self.collection_manager.collections

    def collection(self, coll_name) -> Collection:
        """The collection of that name."""
        return self.collection_manager.get(coll_name)

    def workers(self) -> list[str]:
        """The workers that save tensors."""
        self.maybe_refresh()
        return sorted(self.worker_set)

    def inputs(self, step, mode=ModeKeys.GLOBAL) -> list:
        """Values of the model's inputs."""
        return self._values(self.tensor_names(step=step, mode=mode, collection=CollectionKeys.INPUTS), step, mode)

    def labels(self, step, mode=ModeKeys.GLOBAL) -> list:
        """Values of labels."""
        return self._values(self.tensor_names(step=step, mode=mode, regex="labels*"), step, mode)

    def predictions(self, step, mode=ModeKeys.GLOBAL) -> list:
        """Values of predictions."""
        return self._values(self.tensor_names(step=step, mode=mode, regex="predictions*"), step, mode)

    def _values(self, names, step, mode) -> list:
        def number(name):
            tail = name.rpartition("_")[2]
            return int(tail) if tail.isdigit() else 0

        return [self.tensor(name).value(step, mode) for name in sorted(names, key=number)]

    # Steps.

    def is_complete(self, global_step) -> bool:
        """Whether all workers have saved the step, or it is not waited for any more."""
        workers = len(self._workers_of.get(global_step, ()))
        return self.loaded_all_steps or global_step <= self.last_complete_step or workers >= self.num_workers

    def steps(self, mode=ModeKeys.GLOBAL, show_incomplete_steps=False) -> list[int]:
        """Steps of a mode, or of all: complete ones unless others are asked for."""
        self.maybe_refresh()
        found = sorted(self._mode_of if mode == ModeKeys.GLOBAL else self._global_of.get(mode, ()))
        if show_incomplete_steps:
            return found
        return [step for step in found if self.is_complete(self.global_step(mode, step))]

    def modes(self):
        """Modes of which there are steps, but for GLOBAL."""
        return self._global_of.keys()

    def global_step(self, mode, mode_step):
        """The number among all steps; nothing for a step that was not saved."""
        return mode_step if mode == ModeKeys.GLOBAL else self._global_of.get(mode, {}).get(mode_step)

    def mode_modestep(self, global_step):
        """Mode of a step, and its number in that; a pair of None for a step that was not saved."""
        if global_step not in self._mode_of:
            self.maybe_refresh()
        return self._mode_of.get(global_step, (None, None))

    def mode_step(self, global_step):
        """The number of a step in its mode."""
        return self.mode_modestep(global_step)[1]

    def mode(self, global_step):
        """The mode of a step."""
        return self.mode_modestep(global_step)[0]

    def has_passed_step(self, step, mode=ModeKeys.GLOBAL) -> StepState:
        """Whether a step is complete, may yet become so, or never will."""
        steps = self.steps(mode, show_incomplete_steps=True)
        at = bisect_left(steps, step)
        if at < len(steps):
            is_complete = self.is_complete(self.global_step(mode, steps[at]))
            if steps[at] == step:
                return StepState.AVAILABLE if is_complete else StepState.NOT_YET_AVAILABLE
            return StepState.UNAVAILABLE if is_complete else StepState.NOT_YET_AVAILABLE
        return StepState.UNAVAILABLE if self.loaded_all_steps else StepState.NOT_YET_AVAILABLE

    def wait_for_steps(self, required_steps, mode=ModeKeys.GLOBAL) -> None:
        """Returns when these steps are complete; raises StepUnavailable or NoMoreData where one will
        not be.
        """
        with refresh(self):
            for step in required_steps:
                while (state := self.has_passed_step(step, mode)) == StepState.NOT_YET_AVAILABLE:
                    time.sleep(self._source.interval_s)
                if state == StepState.UNAVAILABLE:
                    steps = self.steps(mode, show_incomplete_steps=True)
                    if self.loaded_all_steps and step >= (steps[-1] if steps else -1):
                        raise NoMoreData(step, mode, steps[-1] if steps else -1)
                    raise StepUnavailable(step, mode)
