"""Keys that checkpoints of version 1 and 2 carry beside the model's."""

SMP_IS_PARTIAL_KEY = "_smp_is_partial"
SMP_IS_LOAD_INFO_KEY = "_smp_load_info"
