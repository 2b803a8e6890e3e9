"""Names of AWS's library that are not offered: errors name what takes their place."""

from smdebug.exceptions import SMDebugNotImplementedError


class SessionHook:
    """AWS's hook for sessions of TensorFlow 1."""

    def __init__(self, *_args, **_kwargs):
        raise SMDebugNotImplementedError(
            f"{type(self).__name__} is not offered: it is for sessions of TensorFlow 1. Use "
            "smdebug.tensorflow.KerasHook as a callback, or smdebug.pytorch.Hook with register_module"
        )

    @classmethod
    def create_from_json_file(cls, json_file_path=None):
        """Refused as well."""
        return cls(json_file_path)

    hook_from_config = create_from_json_file


class EstimatorHook(SessionHook):
    """AWS's hook for estimators of TensorFlow 1."""
