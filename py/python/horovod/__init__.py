"""Horovod's Python interface (that of 0.28.1) on Shoal's process groups: `horovod.torch`,
`horovod.tensorflow`, `horovod.keras`, `horovod.run`, `horovodrun`.
"""

from horovod.runner import run

__all__ = ["__version__", "run"]

#: The version whose interface this is.
__version__ = "0.28.1"
