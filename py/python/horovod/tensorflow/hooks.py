"""What programs of TensorFlow 1 with global variables and sessions use."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.tensorflow.functions import broadcast_variables

__all__ = ["BroadcastGlobalVariablesHook", "broadcast_global_variables"]


def broadcast_global_variables(root_rank: int) -> Any:
    """The op that gives all global variables of the graph the root's values. `RuntimeError` when
    executing eagerly.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. Please use `hvd.broadcast_variables(<model/optimizer variables>)` instead."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Gives all ranks the root's global variables when a session begins."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank, self.device = root_rank, device
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Adds the op to the graph."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            with tf.device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs it."""
        session.run(self.bcast_op)
