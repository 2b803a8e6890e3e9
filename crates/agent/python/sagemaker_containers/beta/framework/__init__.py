"""`from sagemaker_containers.beta import framework`. What serves models (`server`,
`transformer`, `modules`) is importable, as scripts that train and serve import all of it at
their top; Shoal does not serve.
"""

from sagemaker_containers import _env as env
from sagemaker_containers import entry_point
from sagemaker_containers._env import training_env
from sagemaker_containers.beta.framework import content_types, encoders, errors, modules, server, transformer, worker

__all__ = [
    "content_types",
    "encoders",
    "entry_point",
    "env",
    "errors",
    "modules",
    "server",
    "training_env",
    "transformer",
    "worker",
]
