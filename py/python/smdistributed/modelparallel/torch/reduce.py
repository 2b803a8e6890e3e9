"""Averages gradients over data parallel ranks: small ones in buckets and large ones by
themselves, as soon as they are ready or at the step's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from shoal.parallel import Launches, buckets

__all__ = ["Bucket", "Entry", "Reducer"]


#: Bytes; buckets are multiples of it.
ALIGN = 64


@dataclass
class Entry:
    """A parameter and its data parallel ranks."""

    parameter: torch.nn.Parameter
    group: dist.ProcessGroup


@dataclass
class Bucket:
    """Gradients that are sent together; what a communication hook gets, with the calls of
    `torch.distributed.GradBucket`.
    """

    number: int
    entries: list[Entry]
    is_last_one: bool
    flat: torch.Tensor | None = None
    work: Any = None
    absent: list[bool] = field(default_factory=list)
    stale: bool = False

    def buffer(self) -> torch.Tensor:
        """All gradients in one vector."""
        return self.flat

    def set_buffer(self, buffer: torch.Tensor) -> None:
        """Other memory of the same size."""
        self.flat = buffer

    def index(self) -> int:
        """The bucket's number, in the order of sending."""
        return self.number

    def is_last(self) -> bool:
        """Whether it is the step's last bucket."""
        return self.is_last_one

    def parameters(self) -> list[torch.Tensor]:
        """The parameters of its gradients."""
        return [it.parameter for it in self.entries]

    def gradients(self) -> list[torch.Tensor]:
        """Views of the buffer."""
        return [part.view_as(it.parameter) for part, it in zip(self._parts(), self.entries, strict=True)]

    def _parts(self) -> tuple[torch.Tensor, ...]:
        return self.flat.split([it.parameter.numel() for it in self.entries])

    def fill(self, copy: bool) -> None:
        """Copies the gradients into the buffer; without `copy`, a single gradient is the buffer."""
        self.absent = [it.parameter.grad is None for it in self.entries]
        if (
            not copy
            and len(self.entries) == 1
            and not self.absent[0]
            and self.entries[0].parameter.grad.is_contiguous()
        ):
            self.flat = self.entries[0].parameter.grad.view(-1)
        else:
            first = self.entries[0].parameter
            self.flat = torch.empty(
                sum(it.parameter.numel() for it in self.entries), dtype=first.dtype, device=first.device
            )
            for part, it in zip(self._parts(), self.entries, strict=True):
                grad = it.parameter.grad
                if grad is None:
                    part.zero_()
                else:
                    part.copy_((grad.to_dense() if grad.is_sparse else grad).reshape(-1))

    def empty(self) -> None:
        """Copies the buffer back to the gradients."""
        for part, it, absent in zip(self._parts(), self.entries, self.absent, strict=True):
            own = it.parameter.grad
            if own is None:
                # No rank used it: it has no gradient, as in training on one rank.
                if not absent or bool(part.any()):
                    it.parameter.grad = part.view_as(it.parameter).clone()
            elif own.is_sparse:
                it.parameter.grad = part.view_as(it.parameter).clone()
            elif own.data_ptr() != part.data_ptr():
                own.copy_(part.view_as(own))
        self.flat, self.work = None, None


class Reducer:
    """Reduces the gradients of all local parameters. `overlap`: buckets are sent in the last
    microbatch, as soon as their gradients are complete: when each parameter has as many
    contributions as in the step before, since control flow is the same in every step. The order
    of sending is the same on all ranks.
    """

    def __init__(self, entries: Iterable[Entry], cap: int, overlap: bool) -> None:
        self.hook: Callable[[Any, Bucket], torch.futures.Future] | None = None
        self.hook_state: Any = None
        self._entries = [it for it in entries if it.parameter.requires_grad and dist.get_world_size(it.group) > 1]
        kinds: dict[tuple, int] = {}
        sizes = []
        for it in self._entries:
            kind = (id(it.group), it.parameter.dtype, it.parameter.device)
            sizes.append((it.parameter.numel() * it.parameter.itemsize, kinds.setdefault(kind, len(kinds))))
        # A gradient as large as a bucket is reduced where it lies.
        cap = max(cap // ALIGN, 1) * ALIGN
        self._plan = buckets(sizes, cap=cap, first_cap=min(1 << 20, cap), align=ALIGN) if sizes else []
        self._buckets = [
            Bucket(number, [self._entries[at] for at, _ in plan.members], number == len(self._plan) - 1)
            for number, plan in enumerate(self._plan)
        ]
        self._counts = [0] * len(self._entries)
        self._before: list[int] | None = None
        self._launches: Launches | None = None
        self._sent = 0
        self._places = {id(it.parameter): at for at, it in enumerate(self._entries)}
        self._of = {id(it.parameter): bucket for bucket in self._buckets for it in bucket.entries}
        self._active = False
        self._hooks = (
            [it.parameter.register_post_accumulate_grad_hook(self._ready) for it in self._entries] if overlap else []
        )

    def begin(self, last: bool) -> None:
        """A step begins; `last`: its gradients are to be sent."""
        self._counts = [0] * len(self._entries)
        self._active = bool(self._hooks) and last and self._before is not None and bool(self._plan)
        self._launches = Launches(self._plan) if self._active else None
        self._sent = 0

    def _ready(self, parameter: torch.Tensor) -> None:
        at = self._places[id(parameter)]
        self._counts[at] += 1
        if not self._active:
            return
        if self._counts[at] == self._before[at]:
            for number in self._launches.ready(at):
                self._send(self._buckets[number], early=True)
        elif self._counts[at] > self._before[at]:
            # More contributions than in the step before: the bucket was sent incomplete, and is
            # sent again at the end, on all ranks.
            self._of[id(parameter)].stale = True

    def _send(self, bucket: Bucket, early: bool) -> None:
        bucket.fill(copy=early)
        bucket.stale = False
        if self.hook is not None:
            bucket.work = self.hook(self.hook_state, bucket)
        else:
            bucket.work = dist.all_reduce(bucket.flat, dist.ReduceOp.AVG, bucket.entries[0].group, async_op=True)
        self._sent += 1

    def finish(self) -> None:
        """Waits until all gradients are averages."""
        if not self._plan:
            return
        with torch.no_grad():
            for bucket in self._buckets[self._sent :]:
                self._send(bucket, early=False)
            for bucket in self._buckets:
                if bucket.stale:
                    bucket.work.wait()
                    self._send(bucket, early=False)
            for bucket in self._buckets:
                found = bucket.work.wait()
                if self.hook is not None:
                    value = found[0] if isinstance(found, (list, tuple)) else found
                    bucket.flat = value.reshape(-1)
                bucket.empty()
        self._before, self._active = self._counts, False

    def close(self) -> None:
        """Removes the hooks of the parameters."""
        for hook in self._hooks:
            hook.remove()
