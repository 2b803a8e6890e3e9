"""See `sagemaker_training.errors`."""

from sagemaker_training.errors import ClientError, ExecuteUserScriptError, ImportModuleError, InstallModuleError


class UnsupportedFormatError(ClientError):
    """Data of this content type cannot be read or written."""

    def __init__(self, content_type: str):
        super().__init__(
            f"Content type {content_type} is not supported; use application/json, text/csv or application/x-npy"
        )


__all__ = ["ClientError", "ExecuteUserScriptError", "ImportModuleError", "InstallModuleError", "UnsupportedFormatError"]
