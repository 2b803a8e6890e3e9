"""Errors of every framework."""

__all__ = ["SMPConfigError", "SMPError", "SMPRuntimeError", "SMPUnsupportedError", "SMPValidationError"]


class SMPError(Exception):
    """Any error of this library."""


class SMPConfigError(SMPError, ValueError):
    """An invalid setting: `field` names it, `nearest` has valid values."""

    def __init__(self, field: str, problem: str, nearest: object = None) -> None:
        values = [] if nearest is None else list(nearest) if isinstance(nearest, (list, tuple)) else [nearest]
        hint = f"; nearest valid: {' or '.join(map(str, values))}" if values else ""
        super().__init__(f"mp_parameters: {field}: {problem}{hint}")
        self.field = field
        self.nearest = values


class SMPValidationError(SMPError, ValueError):
    """An invalid argument."""


class SMPRuntimeError(SMPError, RuntimeError):
    """A call at the wrong time."""


class SMPUnsupportedError(SMPError, NotImplementedError):
    """A feature that is not offered; the text says what to use instead."""
