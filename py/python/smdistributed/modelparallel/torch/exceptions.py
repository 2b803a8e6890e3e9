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
    """A module cannot be where it is wanted."""


class InvalidPartitionError(SMPValidationError):
    """A number that is no partition's."""


class CheckpointingError(SMPRuntimeError):
    """Activations of this module cannot be computed again."""


class MicrobatchError(SMPValidationError):
    """A batch that microbatches do not divide."""


class StepOutputError(SMPValidationError):
    """What a step returned cannot be put together."""


class RemoteError(SMPRuntimeError):
    """Another rank of the pipeline failed; the text says which, and with what."""
