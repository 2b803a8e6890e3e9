"""Importing it makes `torch.distributed.init_process_group("smddp")` work, as SageMaker's library has it: on Shoal's process groups. It sets
SMDATAPARALLEL_LOCAL_RANK and, under mpirun, what torch's rendezvous reads."""

from shoal.backends import register
from smdistributed.dataparallel import __version__
from smdistributed.dataparallel.environment import complete

__all__ = ["__version__"]

complete()
register()
