"""Errors of the toolkit. A script may raise or catch them; the job fails as with any other
exception.
"""


class ClientError(Exception):
    """The user's mistake."""


class ExecuteUserScriptError(ClientError):
    """The script failed."""


class InstallModuleError(ClientError):
    """The script's package could not be installed."""


class ImportModuleError(ClientError):
    """The script's module could not be imported."""
