"""DistributedDataParallel with the arguments of version 1 of SageMaker's library."""

import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as _Torch

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
from smdistributed.dataparallel import environment
from smdistributed.dataparallel.exceptions import SMDDPConfigError, SMDDPNotInitializedError

__all__ = ["DistributedDataParallel"]

BUCKET_MB = 25


class DistributedDataParallel(_Torch):
    """Averages gradients during the backward pass, bucket by bucket (`bucket_cap_mb`, MiB; 25 if
    not given); parameters and buffers are rank 0's at first, and with `broadcast_buffers` buffers
    are at each forward pass.

    `device_ids` is the one local device; for a module on the CPU its number is not looked at. Keys
    of `state_dict()` begin with `module.`. Raises `SMDDPNotInitializedError` without a process
    group and `SMDDPConfigError` for several devices.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: list[int | torch.device] | None = None,
        output_device: int | torch.device | None = None,
        broadcast_buffers: bool = True,
        process_group: dist.ProcessGroup | None = None,
        bucket_cap_mb: float | None = None,
        **more,
    ):
        if not dist.is_initialized():
            raise SMDDPNotInitializedError(
                "DistributedDataParallel: there is no process group; call init_process_group() first"
            )
        if device_ids is not None and len(device_ids) > 1:
            raise SMDDPConfigError(
                f"DistributedDataParallel: device_ids={device_ids}; a rank has one device, give [{environment.local_rank()}]"
            )
        if all(it.device.type == "cpu" for it in module.parameters()):
            device_ids = output_device = None
        with warnings.catch_warnings():
            # Scripts of this version know no other name for it.
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            super().__init__(
                module,
                device_ids=device_ids,
                output_device=output_device,
                broadcast_buffers=broadcast_buffers,
                process_group=process_group,
                bucket_cap_mb=BUCKET_MB if bucket_cap_mb is None else bucket_cap_mb,
                **more,
            )
