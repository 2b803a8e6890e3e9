"""SageMaker's model parallel library v2 (`torch.sagemaker`) on PyTorch's own FSDP, DTensor and
distributed checkpoints.

`init` reads the job's `mp_parameters`, `transform` prepares a model for FSDP, `state` tells
degrees, ranks and groups. What needs SageMaker's closed parts raises `NotImplementedError` with
what to use instead.
"""

from torch.sagemaker.initialization import init, is_initialized
from torch.sagemaker.transformation import transform
from torch.sagemaker.world import state

__all__ = ["__version__", "init", "is_initialized", "state", "transform"]

#: The version of SageMaker's library whose interface this is.
__version__ = "2.8.0"
