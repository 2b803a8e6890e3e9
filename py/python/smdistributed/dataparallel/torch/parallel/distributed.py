"""Where version 1 of SageMaker's library had it, too."""

from torch.nn.parallel import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
