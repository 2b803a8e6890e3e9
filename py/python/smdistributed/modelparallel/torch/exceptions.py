"""Errors of the PyTorch part."""

from smdistributed.modelparallel.backend.exceptions import (
    SMPConfigError,
    SMPError,
    SMPRuntimeError,
    SMPUnsupportedError,
    SMPValidationError,
)

__all__ = [
    "CheckpointingError",
    "DistributedModelNotWrappedError",
    "InvalidPartitionError",
    "MicrobatchError",
    "NotInitializedError",
    "PartitionError",
    "RemoteError",
    "SMPConfigError",
    "SMPError",
    "SMPRuntimeError",
    "SMPUnsupportedError",
    "SMPValidationError",
    "StepOutputError",
]


class NotInitializedError(SMPRuntimeError):
    """`smp.init` has not been called."""


class DistributedModelNotWrappedError(SMPRuntimeError):
    """There is no `smp.DistributedModel` yet."""


class PartitionError(SMPRuntimeError):
    """A module cannot be on the partition that was asked for."""


class InvalidPartitionError(SMPValidationError):
    """There is no partition of this number."""


class CheckpointingError(SMPRuntimeError):
    """Activations of this module cannot be computed again."""


class MicrobatchError(SMPValidationError):
    """A batch that microbatches do not divide."""


class StepOutputError(SMPValidationError):
    """The microbatches' outputs cannot be combined."""


class RemoteError(SMPRuntimeError):
    """Another rank of the pipeline failed; the text says which, and with what."""
