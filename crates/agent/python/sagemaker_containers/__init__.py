"""The predecessor of `sagemaker_training`, which older scripts import."""

from sagemaker_containers import _env as env
from sagemaker_containers._env import training_env

__all__ = ["env", "training_env"]
