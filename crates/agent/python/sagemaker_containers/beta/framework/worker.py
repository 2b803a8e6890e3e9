"""What functions of a script that serves return."""

from typing import Any

from sagemaker_containers.beta.framework import content_types


class Response:
    """A prediction, and how it is written."""

    def __init__(self, response: Any = None, accept: str | None = None, status: int = 200, mimetype: str | None = None):
        self.response = response
        self.status_code = status
        self.mimetype = accept or mimetype or content_types.JSON
