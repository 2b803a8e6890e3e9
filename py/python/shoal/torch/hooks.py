"""Hooks for DistributedDataParallel: `model.register_comm_hook(None, shoal.torch.hooks.bf16)`, or
with what a compressor remembers,
`model.register_comm_hook(shoal.torch.hooks.TopK(0.01), shoal.torch.hooks.compressed)`.

Each gives the average over all ranks, as DistributedDataParallel's own reduction does, and the same
bits on all ranks.
"""

import torch
import torch.distributed as dist

from shoal.comm import ConfigError
from shoal.torch.backend import empty
from shoal.torch.compression import Compression, Int8, PowerSgd, TopK

__all__ = [
    "Compression",
    "Int8",
    "PowerSgd",
    "Registered",
    "TopK",
    "all_reduce",
    "bf16",
    "compressed",
    "fp16",
    "registered",
]


def _group(state: dist.ProcessGroup | None) -> dist.ProcessGroup:
    return dist.group.WORLD if state is None else state


def all_reduce(state: dist.ProcessGroup | None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The average itself. `state` is the process group; none is the default one."""
    buffer = bucket.buffer()
    done = dist.all_reduce(buffer, dist.ReduceOp.AVG, _group(state), async_op=True).get_future()
    return done.then(lambda done: _passed(done, buffer))


class Registered:
    """The state of the hook `registered`: memory for each bucket."""

    def __init__(self, group: dist.ProcessGroup | None = None):
        self.group = _group(group)
        self._memory: dict[tuple[int, int, torch.dtype], torch.Tensor] = {}

    def memory(self, bucket: dist.GradBucket) -> torch.Tensor:
        """As long as the bucket, in registered memory; the same in each step."""
        buffer = bucket.buffer()
        key = bucket.index(), buffer.numel(), buffer.dtype
        if key not in self._memory:
            # Buckets were made anew: those of this number are of no more use.
            self._memory = {other: memory for other, memory in self._memory.items() if other[0] != key[0]}
            self._memory[key] = empty(buffer.numel(), dtype=buffer.dtype, group=self.group)
        return self._memory[key]


def registered(state: Registered, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The average itself, made in registered memory: buckets, which torch allocates, are copied
    there and back.
    """
    memory = state.memory(bucket).copy_(bucket.buffer())
    done = dist.all_reduce(memory, dist.ReduceOp.AVG, state.group, async_op=True).get_future()
    return done.then(lambda done: _passed(done, memory))


def _passed(done: torch.futures.Future, buffer: torch.Tensor) -> torch.Tensor:
    done.value()
    return buffer


def _cast(
    state: dist.ProcessGroup | None, bucket: dist.GradBucket, dtype: torch.dtype
) -> torch.futures.Future[torch.Tensor]:
    buffer = bucket.buffer()
    small = buffer.to(dtype)
    done = dist.all_reduce(small, dist.ReduceOp.AVG, _group(state), async_op=True).get_future()
    return done.then(lambda done: _passed(done, buffer).copy_(small))


def bf16(state: dist.ProcessGroup | None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Half the bytes: gradients go as bfloat16 (8 bits of precision), are added in 32 bits and
    rounded once more.
    """
    return _cast(state, bucket, torch.bfloat16)


def fp16(state: dist.ProcessGroup | None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Half the bytes: gradients go as float16 (11 bits of precision, at most 65504), are added
    in 32 bits and rounded once more.
    """
    return _cast(state, bucket, torch.float16)


def compressed(state: Compression, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The average as nearly as the compressor can; `state` is an `Int8`, a `TopK` or a
    `PowerSgd`.
    """
    if not isinstance(state, Compression):
        raise TypeError(
            f"the hook `compressed` wants an Int8(), a TopK(...) or a PowerSgd(...) as its state, not {state!r}"
        )
    buffer = bucket.buffer()
    if buffer.device.type != "cpu":
        raise ConfigError(
            f"the hook `compressed` has gradients on {buffer.device}: compressors work in host memory; use the hook `bf16` or `fp16`"
        )
    if not state.begins(bucket) or buffer.dtype is not torch.float32:
        state.add_plain(buffer)
        return all_reduce(state.group, bucket)
    return state.start(bucket)
