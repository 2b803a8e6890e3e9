"""Callbacks of Keras, each without its base class: `horovod.keras` and
`horovod.tensorflow.keras` add the one of their Keras.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod._keras.momentum import Momentum
from horovod.common import simulation
from horovod.tensorflow import bridge
from horovod.tensorflow.util import plain, reference


class BroadcastGlobalVariablesCallbackImpl:
    """Gives all ranks the root's variables after the first batch, so that they begin alike: by
    then the optimizer has made its own. `local_variables` stay as they are.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank, self.device = root_rank, device
        self.broadcast_done = False
        self._local_vars: set[Any] = set()
        one = isinstance(local_variables, tf.Variable) or hasattr(local_variables, "assign")
        local = [] if local_variables is None else [local_variables] if one else list(local_variables)
        if not all(isinstance(it, tf.Variable) or hasattr(it, "assign") for it in local):
            raise ValueError("All local variables must be of tf.Variable type.")
        for it in local:
            self.register_local_var(it)

    def register_local_var(self, var: Any) -> None:
        """Excludes a variable from the broadcast."""
        self._local_vars.add(reference(var))

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcasts after the first batch."""
        if self.broadcast_done:
            return
        with tf.device(self.device):
            if tf.executing_eagerly():
                # The `variables` of Keras 3 have metrics and the state of random numbers too, which
                # differ between ranks.
                variables = [plain(it) for it in self.model.weights if reference(it) not in self._local_vars]
                known = {reference(it) for it in variables}
                hvd.broadcast_variables(variables, root_rank=self.root_rank)
                optimizer = getattr(self.model, "optimizer", None)
                own = [
                    plain(it)
                    for it in (_listed(optimizer) if optimizer is not None else [])
                    if reference(it) not in known
                ]
                hvd.broadcast_variables(own, root_rank=self.root_rank)
            else:
                session = tf.compat.v1.keras.backend.get_session()
                session.run(hvd.broadcast_global_variables(self.root_rank))
        self.broadcast_done = True


def _listed(optimizer: Any) -> list[Any]:
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


class MetricAverageCallbackImpl:
    """Averages an epoch's metrics over all ranks. It comes before callbacks that read metrics
    (ReduceLROnPlateau, TensorBoard, checkpoints).
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Writes the averages to the logs, for later callbacks."""
        names = sorted(logs or {})
        if not names:
            return
        values = [np.asarray(float(np.asarray(logs[it])), np.float64) for it in names]
        # By name: a metric that only some ranks have is named when they wait.
        means = (
            bridge.collective("allreduce", values, [f"metric.{it}" for it in names], op="average")[0]
            if hvd.size() > 1
            else values
        )
        for name, mean in zip(names, means, strict=True):
            logs[name] = float(mean)


class LearningRateScheduleCallbackImpl:
    """Sets the learning rate to `initial_lr * multiplier` from `start_epoch` until before
    `end_epoch`.

    multiplier: a constant m, which means m ** (epoch - start_epoch); or a function of the epoch,
    which is a whole number if `staircase` (set per epoch), else epoch + batch / steps_per_epoch
    (set per batch). With `momentum_correction`, the momentum of a batch that changes the rate is
    multiplied by new / old (Goyal et al. 2017, section 2.3).
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr = initial_lr
        self.start_epoch, self.end_epoch, self.staircase = start_epoch, end_epoch, staircase
        self.momentum_correction, self.steps_per_epoch = momentum_correction, steps_per_epoch
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier ** (epoch - start_epoch)
        self.current_epoch = 0
        self._momentum: Momentum | None = None

    def _autodetect_steps_per_epoch(self) -> int:
        if self.params.get("steps"):
            return self.params["steps"]
        if self.params.get("samples") and self.params.get("batch_size"):
            return self.params["samples"] // self.params["batch_size"]
        what = "Could not autodetect the number of steps per epoch. Please specify the steps_per_epoch parameter to the"
        raise ValueError(f"{what} {type(self).__name__}().")

    def on_train_begin(self, logs: Any = None) -> None:
        """Finds out how many batches an epoch has, and how to set the momentum."""
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self._autodetect_steps_per_epoch()
        if self.momentum_correction:
            self._momentum = Momentum.of(self.model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Keeps the epoch's number."""
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate: in an epoch's first batch if `staircase`, else in every batch."""
        if self.current_epoch < self.start_epoch or (
            self.end_epoch is not None and self.current_epoch >= self.end_epoch
        ):
            return
        if not self.staircase:
            self._adjust(self.current_epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._adjust(self.current_epoch)

    def _adjust(self, epoch: float) -> None:
        old, new = rate_of(self.model.optimizer), self.initial_lr * self.multiplier(epoch)
        _set_rate(self.model.optimizer, new)
        if self._momentum is not None and old:
            self._momentum.correct(new / old)

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Restores the momentum."""
        if self._momentum is not None:
            self._momentum.restore()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Logs the rate."""
        if logs is not None:
            logs["lr"] = rate_of(self.model.optimizer)


def rate_of(optimizer: Any) -> float:
    """The learning rate as a number."""
    rate = optimizer.learning_rate if hasattr(optimizer, "learning_rate") else optimizer.lr
    return float(tf.keras.backend.get_value(rate)) if not tf.executing_eagerly() else float(np.asarray(rate))


def _set_rate(optimizer: Any, value: float) -> None:
    if tf.executing_eagerly():
        optimizer.learning_rate = value
    else:
        tf.keras.backend.set_value(optimizer.lr, value)


class LearningRateWarmupCallbackImpl(LearningRateScheduleCallbackImpl):
    """Raises the learning rate from `initial_lr` / size to `initial_lr`, which is the scaled
    one, batch by batch during `warmup_epochs` (Goyal et al. 2017): lr = initial_lr / size * (e *
    (size - 1) / warmup_epochs + 1), with the epoch e counted to the end of the batch. In large
    batch simulation the size is that of the simulated world.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            epoch += 1.0 / self.steps_per_epoch
            size = simulation.workers()
            return (epoch * (size - 1) / warmup_epochs + 1) / size

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Reports the end of the warm-up."""
        super().on_epoch_end(epoch, logs)
        if epoch == self.end_epoch - 1 and self.verbose > 0 and hvd.rank() == 0:
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate_of(self.model.optimizer):g}.")


def checkpoint(base: type) -> type:
    """`BestModelCheckpoint` as a subclass of a Keras' `ModelCheckpoint`."""

    class BestModelCheckpoint(base):
        """Saves the model with the best `monitor` of all epochs, on rank 0, to `filepath` (an
        attribute, which may be set later).
        """

        def __init__(
            self,
            monitor: str = "val_loss",
            verbose: int = 0,
            mode: str = "auto",
            save_freq: Any = "epoch",
            filepath: str = "best_model.keras",
        ) -> None:
            given = {"monitor": monitor, "verbose": verbose, "mode": mode, "save_freq": save_freq}
            super().__init__(filepath=filepath, save_best_only=True, save_weights_only=False, **given)

        def _save_model(self, *args: Any, **kwargs: Any) -> None:
            if not hvd.is_initialized() or hvd.rank() == 0:
                super()._save_model(*args, **kwargs)

    if not hasattr(base, "_save_model"):
        warnings.warn(
            "this Keras has no ModelCheckpoint._save_model: every rank saves its BestModelCheckpoint", stacklevel=2
        )
    return BestModelCheckpoint
