"""The hook of all frameworks: steps and modes, which collections are saved when, and the files.

A hook of a framework decides when a step begins (`_begin_step`) and offers tensors by their names
(`_save`); it overrides how its tensors become arrays and reductions, and which rank it is.
"""

import atexit
import os
import socket
import time

from smdebug.core import layout
from smdebug.core.collection import SCALAR_COLLECTIONS, Collection, CollectionKeys
from smdebug.core.guard import guarded, place
from smdebug.core.json_config import DEFAULT_WORKER_NAME, create_hook_from_json_config, is_sagemaker_job
from smdebug.core.logger import get_logger
from smdebug.core.modes import ALLOWED_MODE_NAMES, ModeKeys
from smdebug.core.reduction_config import ReductionConfig
from smdebug.core.reductions import get_numpy_reduction, get_reduction_tensor_name, make_numpy_array
from smdebug.core.save_config import SaveConfig
from smdebug.core.singleton import set_hook
from smdebug.core.state_store import (
    LATEST_GLOBAL_STEP_SAVED,
    LATEST_GLOBAL_STEP_SEEN,
    LATEST_MODE_STEP,
    TRAINING_RUN,
    StateStore,
)
from smdebug.core.unmatched import unmatched
from smdebug.core.writer import FileWriter
from smdebug.exceptions import SMDebugRuntimeError, SMDebugTypeError, SMDebugValueError

GRADIENT_PREFIX = "gradient/"
SCALAR_PREFIX = "scalar/"
_FOR_LONG = 1 << 40
_ONLY_TRAINING = (CollectionKeys.GRADIENTS, CollectionKeys.OPTIMIZER_VARIABLES)


def _out_dir(path) -> str:
    if path is None:
        raise SMDebugRuntimeError("out_dir is a required argument")
    path = os.path.expanduser(path)
    if path.startswith("s3://"):
        raise SMDebugValueError(f"out_dir={path}: write to a local directory, the platform uploads it to S3")
    if os.path.exists(os.path.join(path, layout.END_OF_JOB_FILENAME)):
        raise SMDebugRuntimeError(
            f"The path:{path} already exists and holds a run. Please provide a directory path that does not exist."
        )
    return path


class BaseHook:
    """What hooks have in common; arguments as AWS's.

    `include_collections` is saved besides the framework's default ones, `save_config` and
    `reduction_config` apply to collections that have none of their own.
    """

    #: Names and patterns of the framework's collections, and which are saved without being named.
    COLLECTIONS = {}
    DEFAULT_INCLUDE_COLLECTIONS = [CollectionKeys.LOSSES]
    #: Of steps where the configuration has nothing.
    DEFAULT_VALUES = {}
    #: Whether it attached itself, without a script's doing.
    is_automatic = False
    #: Whether the script sets the modes.
    mode_is_given = False

    def __init__(
        self,
        out_dir=None,
        export_tensorboard=False,
        tensorboard_dir=None,
        dry_run=False,
        reduction_config=None,
        save_config=None,
        include_regex=None,
        include_collections=None,
        save_all=False,
        include_workers="one",
    ):
        from smdebug.core.collection_manager import CollectionManager

        self.failed = False
        self.logger = get_logger()
        self.out_dir = _out_dir(out_dir)
        self.tensorboard_dir = os.path.expanduser(tensorboard_dir) if tensorboard_dir else None
        if export_tensorboard and not tensorboard_dir:
            self.tensorboard_dir = os.path.join(self.out_dir, "tensorboard")
        self.dry_run, self.save_all = dry_run, save_all
        if include_workers not in ("one", "all"):
            raise SMDebugValueError(f"include_workers={include_workers} must be one or all")
        self.save_all_workers = include_workers == "all"
        self.save_config = SaveConfig.parse(save_config)
        self.reduction_config = reduction_config or ReductionConfig(save_raw_tensor=True)
        self.collection_manager = CollectionManager(self.COLLECTIONS)
        self.include_collections = set(self.DEFAULT_INCLUDE_COLLECTIONS) | set(include_collections or ())
        self.include_regex = include_regex
        if include_regex is not None:
            self.get_collection(CollectionKeys.DEFAULT).include(list(include_regex))
            self.include_collections.add(CollectionKeys.DEFAULT)
        if save_all:
            self.include_collections.add(CollectionKeys.ALL)
        #: From the first step on: the collections that are saved, and those of each name.
        self._saved, self._of_name = None, {}
        self._due, self._warned_unmatched = frozenset(), False
        #: How many steps of this mode come before one that is saved.
        self._idle = 0
        self.step, self.mode, self.mode_steps = -1, ModeKeys.GLOBAL, {ModeKeys.GLOBAL: -1}
        self.init_step, self.last_saved_step, self.training_run = -1, None, 0
        self.worker, self._writes, self._claimed = None, None, False
        self.writer, self._summaries = None, {}
        self._scalars, self._custom, self._unsaved = [], {}, set()
        self._exported, self._closed, self._pid = None, False, os.getpid()
        self._state_store = StateStore()
        self._continue_from(self._state_store.get_last_saved_state())
        self.logger.info(f"Saving to {self.out_dir}")
        atexit.register(self.close)
        set_hook(self)

    @classmethod
    def create_from_json_file(cls, json_file_path=None):
        """A hook of the platform's file; FileNotFoundError where there is none."""
        return create_hook_from_json_config(cls, json_file_path, cls.DEFAULT_VALUES)

    @classmethod
    def hook_from_config(cls, json_config_path=None):
        """The same, by its old name."""
        return cls.create_from_json_file(json_config_path)

    def __getstate__(self):
        # A model that is pickled with its hooks takes none of this along.
        return {"failed": True}

    # What a framework's hook is about.

    def _place(self) -> tuple[int, int]:
        """Rank and number of ranks."""
        return 0, 1

    def _names(self) -> list[str]:
        """Tensors that could be saved, as far as that is known before they are there."""
        return []

    def _detach(self) -> None:
        """Leaves the framework's objects alone from now on."""

    def _make_numpy_array(self, value):
        """A framework's tensor, or anything that numpy takes, as an array."""
        return make_numpy_array(value)

    def _reduction(self, name: str, value, is_abs: bool):
        """A reduction of a framework's tensor."""
        return get_numpy_reduction(name, self._make_numpy_array(value), is_abs)

    def _get_reduction_name(self, name: str, reduction: str, is_abs: bool) -> str:
        """Under which name the reduction of a tensor is stored."""
        return get_reduction_tensor_name(name, reduction, is_abs)

    # What scripts call.

    def set_mode(self, mode) -> None:
        """From now on steps are of this mode, and counted with its own."""
        if not isinstance(mode, ModeKeys):
            raise SMDebugValueError(f"Invalid mode {mode}. Valid modes are {','.join(ALLOWED_MODE_NAMES)}.")
        self.mode_is_given = True
        self.use_mode(mode)

    def use_mode(self, mode) -> None:
        """As `set_mode`, but for a hook that finds out itself what a step is of."""
        if mode is not self.mode:
            self._idle = 0
        self.mode = mode
        self.mode_steps.setdefault(mode, self.init_step)

    def get_collection(self, name, create=True) -> Collection:
        """The collection of that name, which is made where it is missing."""
        return self.collection_manager.get(name, create)

    def get_collections(self) -> dict:
        """All collections by name."""
        return self.collection_manager.get_collections()

    def add_collection(self, collection) -> None:
        """Adds a collection, in place of one of that name."""
        if not isinstance(collection, Collection):
            raise SMDebugTypeError(
                f"collection must be an instance of Collection class. "
                f"value of type {collection.__class__} is not supported"
            )
        self.collection_manager.add(collection)

    def save_tensor(self, tensor_name, tensor_value, collections_to_write=CollectionKeys.DEFAULT) -> None:
        """Saves a tensor of the script's with this step, if the step is saved, into collections."""
        names = [collections_to_write] if isinstance(collections_to_write, str) else list(collections_to_write)
        for name in names:
            self.get_collection(name).add_tensor_name(tensor_name)
        self._custom[tensor_name] = tensor_value

    def save_scalar(self, name, value, sm_metric=False, timestamp=None) -> None:
        """Saves a number, in the files of the next step that is saved.

        `sm_metric` changes nothing: the platform finds metrics in the log, by their definitions.
        """
        number = self._make_numpy_array(value)
        if number.size != 1:
            raise SMDebugTypeError(f"{SCALAR_PREFIX}{name} has non scalar value of type: {type(value)}")
        self._scalars.append((SCALAR_PREFIX + name, number, timestamp or time.time(), max(self.step, 0)))

    def close(self) -> None:
        """Writes what is left, and ends the run's files where the platform does not."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed, self._idle = True, 0
        self._finish()
        self._detach()

    @guarded
    def _finish(self) -> None:
        self._end_step()
        # Those of all steps are known now.
        self._warned_unmatched = self._warned_unmatched and not self._writes
        self._tell_unmatched()
        if self._writes is None:
            self._writes = self._claim()
        if not self._writes:
            return
        self._prepare()
        self._export()
        if not is_sagemaker_job():
            layout.write_whole(os.path.join(self.out_dir, layout.END_OF_JOB_FILENAME), b"")
        self._release()

    def give_up(self, error: BaseException) -> None:
        """Warns once of what went wrong, and switches the hook off."""
        self.failed, self._idle = True, 0
        self.logger.warning(f"Debugger's hook is off from step {self.step} on, the training continues: {place(error)}")
        self._detach()
        self._release()

    # Steps.

    def _continue_from(self, state: dict | None) -> None:
        if state is None:
            return
        self.last_saved_step = state[LATEST_GLOBAL_STEP_SAVED]
        self.training_run = 1 + state[TRAINING_RUN]
        self.step = self.init_step = state[LATEST_GLOBAL_STEP_SEEN]
        self.mode_steps = {ModeKeys[name]: step for name, step in state[LATEST_MODE_STEP].items()}
        self.mode_steps[ModeKeys.GLOBAL] = self.step
        self.logger.info(f"Steps continue behind {self.step}, the last one before the checkpoint")

    def _remember(self) -> None:
        if self.step >= 0 and self._state_store.is_checkpoint_updated():
            state = {TRAINING_RUN: self.training_run, LATEST_GLOBAL_STEP_SAVED: self.last_saved_step}
            state[LATEST_GLOBAL_STEP_SEEN] = self.step
            state[LATEST_MODE_STEP] = {mode.name: step for mode, step in self.mode_steps.items()}
            self._state_store.update_state(state)

    def passes(self) -> bool:
        """Whether the step that begins is one of which it is known that nothing is saved; then it is
        counted, which is all that most steps cost.
        """
        if not self._idle:
            return False
        self._idle -= 1
        self.step += 1
        self.mode_steps[self.mode] += 1
        self.mode_steps[ModeKeys.GLOBAL] = self.step
        if self._custom:
            self._custom.clear()
        return True

    def _idle_behind(self, mode: ModeKeys, step: int) -> int:
        if self._due or self._state_store.is_on():
            return 0
        ahead = (one.save_config.get_save_config(mode).next_step(step) for one in self._saved)
        return min((one - step - 1 for one in ahead if one is not None), default=_FOR_LONG)

    def _begin_step(self, step: int | None = None) -> None:
        """Ends the step before and begins the next one, or that of a number."""
        self._end_step()
        self._prepare()
        self._remember()
        mode = self.mode
        if step is None:
            self.step += 1
            self.mode_steps[mode] = self.mode_steps.get(mode, self.init_step) + 1
        else:
            self.step = self.mode_steps[mode] = step
        self.mode_steps[ModeKeys.GLOBAL] = self.step
        self._due = self._due_at(mode, self.mode_steps[mode])
        if self._due and self._writes is None:
            self._writes = self._claim()
        if not self._writes:
            self._due = frozenset()
        self._idle = self._idle_behind(mode, self.mode_steps[mode])

    def _due_at(self, mode: ModeKeys, step: int) -> frozenset:
        trains = mode in (ModeKeys.TRAIN, ModeKeys.GLOBAL)
        due = (one for one in self._saved if one.save_config.should_save_step(mode, step))
        return frozenset(one for one in due if trains or one.name not in _ONLY_TRAINING)

    def _end_step(self) -> None:
        """Writes what is left of the step, and gives its files their names."""
        if self._due:
            for name, value in self._custom.items():
                self._write_custom(name, value)
            self.last_saved_step = self.step
        self._custom.clear()
        if self.writer is not None or self._closed:
            self._write_scalars()
        for writer in (self.writer, *self._summaries.values()):
            if writer is not None:
                writer.close()
        saved, self.writer = self.writer is not None, None
        self._summaries.clear()
        if saved:
            self._export()
            self._tell_unmatched()
        self._due = frozenset()

    def _prepare(self) -> None:
        """From the first step on it is settled what is saved."""
        if self._saved is not None:
            return
        everything = CollectionKeys.ALL in self.include_collections
        if everything:
            self.get_collection(CollectionKeys.ALL).include(".*")
        self._saved = set()
        for name, one in self.get_collections().items():
            self._complete(one)
            if everything or name in self.include_collections:
                self._saved.add(one)
        self.logger.info(f"Monitoring the collections: {', '.join(sorted(one.name for one in self._saved))}")

    def _complete(self, one: Collection) -> None:
        if one.save_config is None:
            one.save_config = self.save_config
        one.save_config.merge_default_save_config(self.save_config)
        if one.name in SCALAR_COLLECTIONS:
            one.save_histogram = False
            one.reduction_config = ReductionConfig(save_raw_tensor=True)
        elif one.reduction_config is None:
            one.reduction_config = self.reduction_config

    def _tell_unmatched(self) -> None:
        if self._warned_unmatched or self._saved is None:
            return
        self._warned_unmatched = True
        names = {*self._names(), *self._of_name}
        for line in unmatched(self._saved, self.COLLECTIONS, names):
            self.logger.warning(line)

    # Who writes.

    def _claim(self) -> bool:
        """Whether this process is one that writes."""
        rank, size = self._place()
        self.worker = f"worker_{rank}"
        if self.dry_run or (self.worker != DEFAULT_WORKER_NAME and not self.save_all_workers):
            return False
        self.collection_manager.set_num_workers(size if self.save_all_workers else 1)
        if size > 1:
            return True
        os.makedirs(self.out_dir, exist_ok=True)
        try:
            os.close(os.open(os.path.join(self.out_dir, layout.CLAIM_FILENAME), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            self.logger.warning(
                f"Another process writes to {self.out_dir}: nothing of this one (pid {os.getpid()}) is saved"
            )
            return False
        self._claimed = True
        return True

    def _release(self) -> None:
        if self._claimed:
            self._claimed = False
            try:
                os.remove(os.path.join(self.out_dir, layout.CLAIM_FILENAME))
            except FileNotFoundError:
                pass

    def _export(self) -> None:
        """Writes to the worker's file what is saved, as long as more is found."""
        count = sum(len(one.tensor_names) for one in self._saved)
        if self._exported != count:
            self.collection_manager.export(self.out_dir, self.worker)
            self._exported = count

    # Tensors.

    def _collections_of(self, name: str) -> frozenset:
        """The saved collections that the name belongs to."""
        found = self._of_name.get(name)
        if found is None:
            found = frozenset(one for one in self._saved if one.matches(name))
            for one in found:
                one.add_tensor_name(name)
            self._of_name[name] = found
        return found

    def _saves(self, name: str) -> bool:
        """Whether the name is saved at any step."""
        return any(one.matches(name) for one in self._saved)

    def _save(self, name: str, value) -> None:
        """Saves a tensor if it belongs to a collection that is due."""
        due = self._collections_of(name) & self._due if self._due else None
        if not due:
            return
        try:
            self._write(name, value, due)
        except (SMDebugTypeError, TypeError, ValueError, NotImplementedError, RuntimeError) as error:
            # An unusual tensor costs itself only.
            if name not in self._unsaved:
                self._unsaved.add(name)
                self.logger.warning(f"{name} is not saved: {place(error)}")

    def _write(self, name: str, value, due) -> None:
        plain = [one for one in due if one.name not in SCALAR_COLLECTIONS]
        configs = [one.reduction_config for one in due]
        reductions = dict.fromkeys(each for one in plain for each in one.reduction_config.each())
        for reduction, is_abs in reductions:
            of_it = self._get_reduction_name(name, reduction, is_abs)
            self._write_tensor(of_it, self._reduction(reduction, value, is_abs))
        is_raw, is_shape = any(one.save_raw_tensor for one in configs), any(one.save_shape for one in configs)
        if not (is_raw or is_shape or self.tensorboard_dir):
            return
        array = self._make_numpy_array(value)
        if is_shape:
            self._events().write_shape(name, array.shape, self.mode, self.mode_steps[self.mode])
        if self.tensorboard_dir:
            self._write_summaries(name, array, due)
        if is_raw and array.size:
            self._write_tensor(name, array)

    def _events(self) -> FileWriter:
        if self.writer is None:
            self.writer = FileWriter(self.out_dir, self.worker, max(self.step, 0))
        return self.writer

    def _write_tensor(self, name: str, value, timestamp=None) -> None:
        array = self._make_numpy_array(value)
        step = max(self.mode_steps.get(self.mode, 0), 0)
        self._events().write_tensor(array, name, mode=self.mode, mode_step=step, timestamp=timestamp)

    def _write_custom(self, name: str, value) -> None:
        try:
            self._write_tensor(name, value)
        except (SMDebugTypeError, TypeError, ValueError) as error:
            self.logger.warning(f"The tensor value could not be converted into a numpy value: {name}: {error}")

    def _write_scalars(self) -> None:
        if self._scalars and self._writes is None:
            self._writes = self._claim()
        for name, number, timestamp, step in self._scalars if self._writes else ():
            self._write_tensor(name, number, timestamp)
            if self.tensorboard_dir:
                self._tensorboard().write_scalar_summary(name, number, step, timestamp)
        self._scalars = []

    def _tensorboard(self) -> FileWriter:
        writer = self._summaries.get(self.mode)
        if writer is None:
            worker = f"{os.getpid()}_{socket.gethostname()}"
            writer = FileWriter(self.tensorboard_dir, worker, max(self.step, 0), "tensorboard", self.mode)
            self._summaries[self.mode] = writer
        return writer

    def _write_summaries(self, name: str, array, due) -> None:
        if array.size == 1 and any(one.name in SCALAR_COLLECTIONS for one in due):
            self._tensorboard().write_scalar_summary(name, array, self.step)
        shown = sorted(one.name for one in due if one.save_histogram)
        if shown and array.size and array.dtype.kind in "fiu":
            self._tensorboard().write_histogram_summary(array, f"{shown[0]}/{name}", self.step)
