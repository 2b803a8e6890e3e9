"""`torch.sagemaker.init`."""

import os
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist

from torch.sagemaker import fsdp
from torch.sagemaker.config import read
from torch.sagemaker.logger import get_logger
from torch.sagemaker.world import state

__all__ = ["init", "is_initialized"]


def init(config: str | os.PathLike | Mapping[str, Any] | None = None) -> None:
    """Prepares the library; all ranks call it once, after `torch.distributed.init_process_group`
    (without it, a process group of backend smddp is made, as the launcher's environment says).

    `config`: keys of `mp_parameters`, or the path of a JSON file with them; what the job's own
    `mp_parameters` say counts more. Raises `ValueError` for values that do not fit, with the
    nearest that do, and `RuntimeError` if called twice.
    """
    if state.is_initialized:
        raise RuntimeError("torch.sagemaker.init: it was called already; call it once")
    read_config = read(config)
    if not dist.is_initialized():
        _start()
    state.initialize(read_config)
    fsdp.install()
    if state.rank == 0:
        degrees = ", ".join(
            f"{name} {value}" for name, value in read_config.as_dict().items() if name.endswith("degree")
        )
        get_logger().info("torch.sagemaker: %s ranks, %s", state.world_size, degrees)


def is_initialized() -> bool:
    """Whether `init` was called."""
    return state.is_initialized


def _start() -> None:
    from smdistributed.dataparallel import environment

    if not environment.is_distributed():
        raise RuntimeError(
            "torch.sagemaker.init: there is no process group and no launcher has told the ranks; start the script by torchrun "
            "(distribution torch_distributed) and call torch.distributed.init_process_group first"
        )
    import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401

    dist.init_process_group("smddp")
