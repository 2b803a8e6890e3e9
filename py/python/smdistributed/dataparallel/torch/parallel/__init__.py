"""DistributedDataParallel where version 1 of SageMaker's library had it."""

from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
