"""Importing it makes `torch.distributed.init_process_group("smddp")` work, as SageMaker's library has it: on Shoal's process groups."""

from shoal.backends import register

register()
