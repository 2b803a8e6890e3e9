"""Importing it makes `torch.distributed.init_process_group("smddp")` work, as SageMaker's
library has it: on Shoal's process groups, and tensors of GPUs on NCCL. It sets
SMDATAPARALLEL_LOCAL_RANK and, under mpirun, what torch's rendezvous reads.
"""

import functools

import torch
import torch.distributed as dist

from shoal.backends import register
from smdistributed.dataparallel import __version__
from smdistributed.dataparallel.environment import complete

__all__ = ["__version__"]


def _beside_nccl(function):
    """`init_process_group` that takes "smddp" for both kinds of tensors."""

    @functools.wraps(function)
    def init_process_group(backend=None, *arguments, **named):
        return function("cpu:smddp,cuda:nccl" if backend == "smddp" else backend, *arguments, **named)

    init_process_group.of_smddp = True
    return init_process_group


complete()
register()
if torch.cuda.is_available() and dist.is_nccl_available() and not hasattr(dist.init_process_group, "of_smddp"):
    dist.init_process_group = _beside_nccl(dist.init_process_group)
