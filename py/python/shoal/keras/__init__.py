"""Keras optimizers that train as more workers than there are.

    import horovod.tensorflow.keras as hvd
    hvd.init()
    optimizer = shoal.keras.LargeBatch(keras.optimizers.SGD(0.1 * 8, momentum=0.9), simulate=8)     # two ranks: four passes for each step

Keras 3, or tf_keras with TF_USE_LEGACY_KERAS=1. The rules are those of
`shoal.parallel.Accumulation` and `LossScale`; docs/horovod-tensorflow.md tells more.
"""

from shoal.keras.large_batch import LargeBatch

__all__ = ["LargeBatch"]
