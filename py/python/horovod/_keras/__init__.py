"""What `horovod.keras` and `horovod.tensorflow.keras` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horovod._keras.keras2 import CallableList, of_keras3

__all__ = ["CallableList", "create_distributed_optimizer", "load_model", "value_of"]


def create_distributed_optimizer(
    optimizer: Any,
    name: str | None,
    compression: Any,
    sparse_as_dense: bool,
    gradient_predivide_factor: float,
    op: int,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: Any = None,
    scale_local_gradients: bool = True,
    count_passes: bool = True,
    ask_environment: bool = True,
) -> Any:
    """A distributed optimizer around one of Keras 3 or of tf_keras. `ask_environment`: one pass
    may become several to simulate instances.
    """
    from horovod._keras import simulate
    from horovod.common import simulation
    from horovod.common.process_sets import global_process_set
    from horovod.tensorflow.mpi_ops import Average, Sum

    if not callable(getattr(optimizer, "get_config", None)):
        raise TypeError(
            f"the optimizer is a {type(optimizer).__name__}; give one of Keras, such as keras.optimizers.SGD(0.01)"
        )
    if not callable(getattr(compression, "compress", None)):
        raise TypeError(f"compression is {compression!r}; give hvd.Compression.none or hvd.Compression.fp16")
    if op not in (Average, Sum):
        raise ValueError("op currently only supports Average and Sum")
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    passes, average, rate_factor = backward_passes_per_step, average_aggregated_gradients, 1.0
    if passes == 1 and ask_environment:
        passes = simulate.passes()
        if passes > 1:
            average, count_passes, rate_factor = True, False, simulation.rate_factor()
    reducer = {
        "name": name or f"Distributed{type(optimizer).__name__}",
        "compression": compression,
        "sparse_as_dense": sparse_as_dense or (passes > 1 and backward_passes_per_step == 1),
        "op": op,
        "gradient_predivide_factor": gradient_predivide_factor,
        "groups": groups,
        "process_set": process_set or global_process_set,
        "scale_local_gradients": scale_local_gradients,
    }
    if of_keras3(optimizer):
        from horovod._keras.optimizer import Settings, wrap
    else:
        from horovod._keras.optimizer2 import Settings, wrap

        if rate_factor != 1.0:
            what = "SHOAL_SIMULATE_RATE=by_size cannot be applied to an optimizer of tf_keras"
            raise ValueError(f"{what}; use Keras 3, or unset it and multiply the rate by the number of simulated ranks")
    return wrap(optimizer, Settings(reducer, passes, average, count_passes, rate_factor))


def value_of(result: Any) -> Any:
    """A tensor's value; in a graph of TensorFlow 1, by the default session."""
    import tensorflow as tf

    if tf.executing_eagerly():
        return result.numpy() if hasattr(result, "numpy") else result
    session = tf.compat.v1.get_default_session()
    return tf.compat.v1.keras.backend.get_session().run(result) if session is None else session.run(result)


def load_model(
    keras: Any,
    wrap_optimizer: Callable[[Any], Any],
    filepath: Any,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
) -> Any:
    """The saved model, its optimizer wrapped and with the state that it was saved with."""
    if int(str(keras.__version__).split(".")[0]) < 3:
        kinds = keras.optimizers.Optimizer.__subclasses__() + list(custom_optimizers or [])
        wrapped = {it.__name__: _made_of(it, wrap_optimizer) for it in kinds}
        wrapped.update({name.lower(): it for name, it in wrapped.items()})
        return keras.models.load_model(filepath, custom_objects={**wrapped, **(custom_objects or {})})
    objects = {it.__name__: it for it in custom_optimizers or []}
    model = keras.models.load_model(filepath, custom_objects={**objects, **(custom_objects or {})})
    was = getattr(model, "optimizer", None)
    if was is None:
        return model
    from horovod._keras.optimizer import is_distributed

    optimizer = was if is_distributed(was) else wrap_optimizer(was)
    if optimizer is not was:
        if was.built:
            optimizer.build(model.trainable_variables)
            values = list(was.variables)
            if len(values) < len(optimizer.variables):
                values = _of_h5(filepath)
            for variable, saved in zip(optimizer.variables, values, strict=False):
                variable.assign(saved)
        model.optimizer = optimizer
    model.jit_compile = False
    model.train_function = None
    return model


def _of_h5(filepath: Any) -> list[Any]:
    """The optimizer's variables in a file .h5, of which Keras 3 restores the first two only."""
    import h5py
    from keras.src.legacy.saving.legacy_h5_format import load_optimizer_weights_from_hdf5_group as values_of

    def read(file: Any) -> list[Any]:
        return [it[()] for it in values_of(file)] if "optimizer_weights" in file else []

    if isinstance(filepath, h5py.File):
        return read(filepath)
    if not h5py.is_hdf5(filepath):
        return []
    with h5py.File(filepath, "r") as file:
        return read(file)


def _made_of(kind: type, wrap_optimizer: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda **config: wrap_optimizer(kind(**config))
