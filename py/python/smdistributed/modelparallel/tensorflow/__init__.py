"""Not offered: version 1 of the library splits models of TensorFlow 2.3 to 2.5 only, and Keras 3
has none of the calls it patches.
"""

raise ImportError(
    "smdistributed.modelparallel.tensorflow is not offered: it was made for TensorFlow 2.3 to 2.5. "
    "Use smdistributed.modelparallel.torch for models in parts, or horovod.tensorflow for data parallel training in TensorFlow"
)
