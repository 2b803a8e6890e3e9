"""The errors that SageMaker's containers look for when they report why a script failed."""

__all__ = ["SMDDPConfigError", "SMDDPError", "SMDDPNotInitializedError"]


class SMDDPError(RuntimeError):
    """An error of the data parallel library."""


class SMDDPConfigError(SMDDPError, ValueError):
    """An argument or an environment variable that does not fit."""


class SMDDPNotInitializedError(SMDDPError, ValueError):
    """There is no process group yet, or there is one already."""
