"""What ranks of test_torch_faults.py do with TensorFlow: a step of a tape, and one within
`tf.function`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402 (after its log level)

import horovod.tensorflow as hvd  # noqa: E402


def _step(case, wrap):
    hvd.init()
    width = 5 if case.differs and case.fault == "shape" else 4
    weights = tf.Variable(
        tf.ones([width], tf.float64 if case.differs and case.fault == "dtype" else tf.float32), name="weights"
    )

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights * weights)
        [gradient] = hvd.DistributedGradientTape(tape).gradient(loss, [weights])
        weights.assign_sub(gradient)

    case.run(wrap(step), lambda: hvd.allreduce(tf.ones([7]), name="metric"))


def tape(case):
    """Eagerly."""
    _step(case, lambda it: it)


def graph(case):
    """Within a function."""
    _step(case, tf.function)
