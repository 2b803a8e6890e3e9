"""Tapes whose gradients are those of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common import simulation
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.world import Average, reduction
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradients import Reducer, check_groups, check_predivide, variables_of_layers
from horovod.tensorflow.util import reference

__all__ = ["DistributedGradientTape", "PartialDistributedGradientTape"]


class _Distributed(tf.GradientTape):
    """A tape that goes on from a recorded one."""

    def _wrap(self, tape: tf.GradientTape, reducer: Reducer) -> None:
        self.__dict__.update(tape.__dict__)
        self._reducer = reducer

    def register_local_source(self, source: Any) -> None:
        """Gradients of this variable are not reduced; they are divided by the number of ranks,
        if `scale_local_gradients`.
        """
        self._reducer.register_local(source)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
        use_generic_names: bool = False,
    ) -> Any:
        """As the tape's, reduced over all ranks. `use_generic_names`: ranks may have different
        names for their variables.
        """
        grads = super().gradient(target, sources, output_gradients, unconnected_gradients)
        flat = tf.nest.flatten(sources)
        reduced = self._reducer(tf.nest.flatten(grads), flat, use_generic_names)
        return tf.nest.pack_sequence_as(sources, reduced) if tf.nest.is_nested(sources) else reduced[0]

    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False
    ) -> tuple[list[Any], list[Any]]:
        """Pairs of variable and gradient: those of local variables, and those of all others."""
        grads = self.gradient(target, sources, output_gradients, use_generic_names=use_generic_names)
        pairs = list(zip(sources, grads, strict=True))
        local = [it for it in pairs if reference(it[0]) in self._reducer.local]
        return local, [it for it in pairs if reference(it[0]) not in self._reducer.local]


def DistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list[list[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """The tape, with a `gradient` that is reduced over all ranks.

    `sparse_as_dense`: IndexedSlices are made dense before. `gradient_predivide_factor` f divides by
    f before the sum and by size / f after it (Average only). `groups`: the number of submissions,
    or lists of variables. `scale_local_gradients`: gradients of local sources are divided by the
    number of ranks. The devices are accepted and not used: memory of the host is reduced.
    """
    if not callable(getattr(gradtape, "gradient", None)):
        raise TypeError(f"DistributedGradientTape: the tape is a {type(gradtape).__name__}; give a tf.GradientTape")
    if not callable(getattr(compression, "compress", None)):
        raise TypeError(
            f"DistributedGradientTape: compression is {compression!r}; give hvd.Compression.none or hvd.Compression.fp16"
        )
    reduction(op, "DistributedGradientTape")
    # A tape reduces, and the script steps in every pass.
    simulation.refuse(
        "DistributedGradientTape", "hvd.DistributedOptimizer or shoal.keras.LargeBatch, with a plain tf.GradientTape"
    )
    check_predivide(gradient_predivide_factor, op)
    groups = check_groups(num_groups, groups)
    kind = type(gradtape)
    tape = object.__new__(
        type(kind.__name__, (_Distributed, kind) if kind is not tf.GradientTape else (_Distributed,), {})
    )
    reducer = Reducer(
        "DistributedGradientTape",
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        groups,
        process_set,
        scale_local_gradients,
    )
    tape._wrap(gradtape, reducer)
    return tape


def PartialDistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list[list[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """A `DistributedGradientTape` that does not reduce the gradients of `local_layers`, one
    layer or several.
    """
    local = variables_of_layers(local_layers)
    given = (
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
    )
    tape = DistributedGradientTape(*given, scale_local_gradients)
    for it in local:
        tape.register_local_source(it)
    return tape
