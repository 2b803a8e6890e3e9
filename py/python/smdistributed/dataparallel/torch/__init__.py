"""smddp for PyTorch: the backend "smddp" of torch.distributed (`torch_smddp`), and the interface
of the first version (`distributed`, `parallel`).
"""

from smdistributed.dataparallel import __version__

__all__ = [
    "__version__",
    "get_local_rank",
    "get_rank",
    "get_world_size",
    "init_process_group",
    "is_available",
    "is_initialized",
]


def __getattr__(name: str):
    # The first version's module says that it is deprecated when it is imported, so not before it is
    # asked for.
    if name in __all__:
        from smdistributed.dataparallel.torch import distributed

        return getattr(distributed, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
