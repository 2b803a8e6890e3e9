"""Hooks for DistributedDataParallel: `model.register_comm_hook(None, shoal.torch.hooks.bf16)`.

Each gives the average over all ranks, as DistributedDataParallel's own reduction does, and the same bits on all ranks.
"""

import torch
import torch.distributed as dist


def _group(state: dist.ProcessGroup | None) -> dist.ProcessGroup:
    return dist.group.WORLD if state is None else state


def all_reduce(state: dist.ProcessGroup | None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The average itself. `state` is the process group; none is the default one."""
    buffer = bucket.buffer()
    done = dist.all_reduce(buffer, dist.ReduceOp.AVG, _group(state), async_op=True).get_future()
    return done.then(lambda _: buffer)


def _compressed(state: dist.ProcessGroup | None, bucket: dist.GradBucket, dtype: torch.dtype) -> torch.futures.Future[torch.Tensor]:
    buffer = bucket.buffer()
    small = buffer.to(dtype)
    done = dist.all_reduce(small, dist.ReduceOp.AVG, _group(state), async_op=True).get_future()
    return done.then(lambda _: buffer.copy_(small))


def bf16(state: dist.ProcessGroup | None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Half the bytes: gradients go as bfloat16 (8 bits of precision), are added in 32 bits and rounded once more."""
    return _compressed(state, bucket, torch.bfloat16)


def fp16(state: dist.ProcessGroup | None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Half the bytes: gradients go as float16 (11 bits of precision, at most 65504), are added in 32 bits and rounded once more."""
    return _compressed(state, bucket, torch.float16)
