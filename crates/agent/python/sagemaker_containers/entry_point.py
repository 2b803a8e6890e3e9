"""See `sagemaker_training.entry_point`."""

from sagemaker_training.entry_point import _wait_hostname_resolution

__all__ = ["_wait_hostname_resolution"]
