"""SageMaker Debugger's library under its name: tensors of a training, written as AWS's library
writes them, and read from the files of either.

AWS's own package (1.0.34 is its last) no longer runs beside current versions of numpy, protobuf,
PyTorch and TensorFlow. This one needs numpy alone. Files and names are those of AWS:
`smdebug.pytorch`, `smdebug.tensorflow`, `smdebug.keras` and `smdebug.xgboost` have the hooks,
`smdebug.trials` reads, `smdebug.rules` has the base class of users' rules, `smdebug.profiler` times steps.
Not here: the profiler's readers, MXNet, and hooks for sessions of TensorFlow 1.
"""

from smdebug.core.collection import CollectionKeys
from smdebug.core.modes import ModeKeys as modes
from smdebug.core.reduction_config import ReductionConfig
from smdebug.core.save_config import SaveConfig, SaveConfigMode

__all__ = ["CollectionKeys", "ReductionConfig", "SaveConfig", "SaveConfigMode", "modes"]

#: The version of AWS's package whose API this is.
__version__ = "1.0.34"
