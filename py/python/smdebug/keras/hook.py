"""The hook for Keras: a callback. A batch is a step of its mode."""

import sys

import keras
import numpy as np

from smdebug.core.collection import TENSORFLOW_COLLECTIONS, CollectionKeys
from smdebug.core.guard import guarded, place
from smdebug.core.hook import BaseHook
from smdebug.core.modes import ModeKeys
from smdebug.core.reductions import get_reduction_tensor_name
from smdebug.keras.gradients import Gradients
from smdebug.keras.tape import Tape

#: What a callback of Keras cannot see: the values are within the compiled step.
_WITHIN = (CollectionKeys.INPUTS, CollectionKeys.OUTPUTS, CollectionKeys.LAYERS)


def _variable_name(variable, layer) -> str:
    """As TensorFlow names it: layer, variable, `:0`."""
    name = getattr(variable, "name", "").split(":")[0]
    return f"{name}:0" if "/" in name else f"{layer}/{name}:0"


class KerasHook(BaseHook, keras.callbacks.Callback):
    """AWS's `smdebug.tensorflow.KerasHook`, for `callbacks` of `fit`, `evaluate` and `predict`."""

    COLLECTIONS = TENSORFLOW_COLLECTIONS
    DEFAULT_INCLUDE_COLLECTIONS = [CollectionKeys.LOSSES, CollectionKeys.METRICS, CollectionKeys.SM_METRICS]

    def __init__(self, *args, **kwargs):
        keras.callbacks.Callback.__init__(self)
        self._gradients, self._has_warned = None, False
        BaseHook.__init__(self, *args, **kwargs)

    def wrap_optimizer(self, optimizer):
        """The optimizer as it is: gradients are found without."""
        return optimizer

    def wrap_tape(self, tape) -> Tape:
        """A tape whose block is a step, and whose gradients and loss are saved."""
        return Tape(tape, self)

    @guarded
    def record_tensor_value(self, tensor_name, tensor_value) -> None:
        """Saves a metric of the script's in the present step."""
        self._save_log(tensor_name, tensor_value)

    # What Keras calls.

    @guarded
    def on_train_begin(self, logs=None) -> None:
        self._prepare()
        self._tell_what_is_within()
        if any(one.name in (CollectionKeys.GRADIENTS, CollectionKeys.ALL) for one in self._saved):
            try:
                self._gradients = Gradients(self.model.optimizer)
            except Exception as error:
                self.logger.warning(f"Gradients are not saved: {place(error)}")

    @guarded
    def on_train_end(self, logs=None) -> None:
        self._end_step()
        if self._gradients is not None:
            self._gradients.stop()
            self._gradients = None

    def on_train_batch_begin(self, batch, logs=None) -> None:
        self._begin(ModeKeys.TRAIN)

    def on_test_batch_begin(self, batch, logs=None) -> None:
        self._begin(ModeKeys.EVAL)

    def on_predict_batch_begin(self, batch, logs=None) -> None:
        self._begin(ModeKeys.PREDICT)

    def on_train_batch_end(self, batch, logs=None) -> None:
        self._end(logs)

    def on_test_batch_end(self, batch, logs=None) -> None:
        self._end(logs)

    def on_predict_batch_end(self, batch, logs=None) -> None:
        self._end(None)

    @guarded
    def on_epoch_end(self, epoch, logs=None) -> None:
        """Values of validation are there now; they are saved whatever the step."""
        for name, value in (logs or {}).items():
            if name.startswith("val_"):
                self.save_scalar(name, value)

    # Steps.

    @guarded
    def _begin(self, mode) -> None:
        if not self.mode_is_given:
            self.use_mode(mode)
        if not self.passes():
            self._begin_step()

    @guarded
    def _end(self, logs) -> None:
        if not self._due:
            return
        for name, value in (logs or {}).items():
            self._save_log(name, value)
        self._save_variables()

    @guarded
    def tape_begins(self) -> None:
        """A block of a tape is a step."""
        self._begin(ModeKeys.TRAIN)

    @guarded
    def tape_gave(self, target, sources, gradients) -> None:
        """What a tape was asked for."""
        if not self._due:
            return
        if not hasattr(target, "numpy"):
            if not self._has_warned:
                self._has_warned = True
                self.logger.warning("Gradients and losses of tapes within tf.function are not saved")
            return
        self._save_log("loss", target)
        sources, gradients = (one if isinstance(one, (list, tuple)) else [one] for one in (sources, gradients))
        for variable, gradient in zip(sources, gradients, strict=False):
            if gradient is not None:
                self._save_gradient(variable, "variable", gradient)

    # What is saved.

    def _save_in(self, collection, name, value) -> None:
        self.get_collection(collection).add_tensor_name(name)
        self._save(name, value)

    def _save_log(self, name, value) -> None:
        is_loss = "loss" in name
        self._save_in(CollectionKeys.LOSSES if is_loss else CollectionKeys.METRICS, name, np.mean(np.asarray(value)))

    def _save_gradient(self, variable, layer, gradient) -> None:
        name = _variable_name(variable, layer).removesuffix(":0")
        self._save_in(CollectionKeys.GRADIENTS, f"gradients/{name}Grad", gradient)

    def _save_variables(self) -> None:
        due = {one.name for one in self._due}
        everything = CollectionKeys.ALL in due
        owners = self._owners()
        for variable, layer in owners.values():
            name = f"{layer}/weights/{_variable_name(variable, layer)}"
            if "bias" in name:
                self._save(name, variable)
            else:
                self._save_in(CollectionKeys.WEIGHTS, name, variable)
        if self._gradients is not None and self.mode == ModeKeys.TRAIN:
            for variable, gradient in self._gradients.values():
                layer = owners.get(id(variable), (None, "variable"))[1]
                self._save_gradient(variable, layer, gradient)
        if everything or CollectionKeys.OPTIMIZER_VARIABLES in due:
            for variable in getattr(self.model.optimizer, "variables", ()):
                name = (getattr(variable, "path", None) or variable.name).split(":")[0]
                self._save_in(CollectionKeys.OPTIMIZER_VARIABLES, f"{name}:0", variable)

    def _owners(self) -> dict:
        """By the ids of variables: they, and the names of the innermost layers that have them."""
        owners = {}
        for layer in self.model._flatten_layers():
            for variable in getattr(layer, "_trainable_variables", ()):
                owners[id(variable)] = (variable, layer.name)
        return owners or {id(one): (one, self.model.name) for one in self.model.trainable_variables}

    def _get_reduction_name(self, name, reduction, is_abs) -> str:
        # Names of TensorFlow end with a number, which is a part of them.
        return get_reduction_tensor_name(name, reduction, is_abs, remove_colon_index=False)

    def _tell_what_is_within(self) -> None:
        asked = sorted(one.name for one in self._saved if one.name in _WITHIN)
        if asked and CollectionKeys.ALL not in self.include_collections and not self._has_warned:
            self._has_warned = True
            self.logger.warning(
                f"{', '.join(asked)}: inputs and outputs of layers are within Keras's compiled step and not saved. "
                "Save them by hook.save_tensor in a step of your own"
            )

    # What the base asks.

    def _make_numpy_array(self, value):
        return value.numpy() if hasattr(value, "numpy") else super()._make_numpy_array(value)

    def _place(self) -> tuple[int, int]:
        for name in ("horovod.tensorflow", "horovod.keras", "horovod.tensorflow.keras"):
            hvd = sys.modules.get(name)
            if hvd is not None and hasattr(hvd, "is_initialized") and hvd.is_initialized():
                return hvd.rank(), hvd.size()
        return 0, 1
