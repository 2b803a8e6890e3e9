"""The mean of one vector over all ranks, as few bytes: whole, as bfloat16, or as 8-bit integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.distributed as dist

from shoal.comm import CommError, Compressor, ConfigError
from shoal.torch.backend import empty, is_ours, of
from shoal.torch.reach import reaches

__all__ = ["Wire", "WireType", "all_reduce_bytes"]

WireType = Literal["f32", "bf16", "int8"]


class Wire:
    """Memory for a vector of float32, and its way to the other ranks and back: on the
    parameters' device where the group reaches that, else on the host. What bfloat16 leaves out
    of it goes with the next one; int8 is rounded at random, so that its mean is the value.
    """

    def __init__(self, length: int, kind: WireType, group: dist.ProcessGroup, seed: int, device: torch.device):
        if kind not in ("f32", "bf16", "int8"):
            raise ConfigError(f'wire is {kind!r}: it is "f32", "bf16" or "int8"')
        ours = is_ours(group)
        if kind == "int8" and not ours:
            raise ConfigError(
                'wire="int8" wants a process group of backend "shoal", whose compressor it is; use "bf16" with others'
            )
        self.kind, self.group = kind, group
        self.ranks = dist.get_world_size(group)
        #: What is sent; the mean when it is back.
        self.is_registered = ours and (device.type == "cpu" or kind == "int8" or not reaches(group, device))
        self.vector = (
            empty(length, dtype=torch.float32, group=group)
            if self.is_registered
            else torch.zeros(length, device=device)
        )
        self.left = torch.zeros_like(self.vector) if kind == "bf16" else None
        self._compressor = Compressor.int8(seed) if kind == "int8" else None
        #: Bytes that this rank had to give to others so far, however they travel, and what they
        #: would have been as float32.
        self.wire_bytes = self.plain_bytes = 0

    def send(self) -> Callable[[], None]:
        """Begins; what is returned waits until the mean is there."""
        length = self.vector.numel()
        self.plain_bytes += all_reduce_bytes(4 * length, self.ranks)
        if self._compressor is not None:
            return self._send_int8()
        whole = self.vector
        if self.left is not None:
            torch.add(self.vector, self.left, out=self.left)
            whole = self.left.bfloat16()
            self.left -= whole
        self.wire_bytes += all_reduce_bytes(whole.element_size() * length, self.ranks)
        work = dist.all_reduce(
            whole, dist.ReduceOp.AVG if self.is_registered else dist.ReduceOp.SUM, self.group, async_op=True
        )

        def wait() -> None:
            work.wait()
            if whole is not self.vector:
                self.vector.copy_(whole)
            if not self.is_registered:
                self.vector.div_(self.ranks)

        return wait

    def _send_int8(self) -> Callable[[], None]:
        backend = of(self.group)
        group, thread = backend.beside()
        future = thread.submit(self._compressor.average, group, self.vector.data_ptr(), self.vector.numel())

        def wait() -> None:
            try:
                self.wire_bytes += future.result()[0]
            except CommError as error:
                backend.failure = backend.failure or error
                raise

        return wait


def all_reduce_bytes(whole: int, ranks: int) -> int:
    """What a rank gives in an all-reduce, by the algorithms that send least."""
    return 2 * (ranks - 1) * whole // ranks
