"""The first line of SageMaker's model parallel examples for TensorFlow."""

import smdistributed.modelparallel.tensorflow as smp

smp.init()
