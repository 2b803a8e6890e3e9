"""A worker's place, as its environment says it."""

import os

__all__ = ["get_env_rank_and_size"]


def get_env_rank_and_size() -> tuple[int, int]:
    """Rank and size by the variables of `horovodrun`, MPI or Slurm; 0 and 1 without any."""
    for rank, size in (
        ("HOROVOD_RANK", "HOROVOD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
    ):
        if os.environ.get(rank) and os.environ.get(size):
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1
