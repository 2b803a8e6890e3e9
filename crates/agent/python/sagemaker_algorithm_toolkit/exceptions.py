"""Errors of algorithms."""


class BaseToolkitError(Exception):
    """Any of them."""

    def __init__(self, message: str | None = None, caused_by: BaseException | None = None):
        super().__init__(message or (str(caused_by) if caused_by else "an error without a message"))
        self.message = message
        self.caused_by = caused_by


class UserError(BaseToolkitError):
    """The user's mistake."""


class AlgorithmError(BaseToolkitError):
    """The algorithm's mistake."""


class PlatformError(BaseToolkitError):
    """The platform's mistake."""
