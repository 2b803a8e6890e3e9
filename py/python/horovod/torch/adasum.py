"""The optimizer that combines what local steps have changed, instead of gradients (Maleki et
al., 2020).
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from horovod.common.process_sets import global_process_set
from horovod.torch.counting import RACE, Named
from horovod.torch.mpi_ops import Adasum
from horovod.torch.reductions import reduce


class _DistributedAdasumOptimizer(Named):
    """Steps on this rank's gradients, then combines what the step changed by Adasum."""

    def _distribute(self, named_parameters, compression, passes) -> None:
        self._name(named_parameters)
        self._compression = compression
        self._started: dict[torch.Tensor, torch.Tensor] = {}
        self._prepare(passes, True)

    def _counted(self, parameter: torch.Tensor) -> None:
        super()._counted(parameter)

    def synchronize(self) -> None:
        """Does nothing: `step()` combines the changes."""

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Refused: without the combination there is no step."""
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")
        yield

    def step(self, closure=None):
        """A local step, whose changes are combined with those of the other ranks."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        parameters = self._requires_update
        with torch.no_grad():
            for it in parameters:
                self._started.setdefault(it, torch.empty_like(it)).copy_(it)
        super().step()
        by_device: dict[torch.device, list] = defaultdict(list)
        with torch.no_grad():
            for it in parameters:
                small, ctx = self._compression.compress(it.detach() - self._started[it])
                by_device[it.device].append((it, small.contiguous(), ctx))
            batches = [(some, self._combine(some)) for some in by_device.values()]
            for some, pending in batches:
                pending.wait()
                for it, small, ctx in some:
                    it.copy_(self._started[it]).add_(self._compression.decompress(small, ctx))
        for it in parameters:
            self._allreduce_delay[it] = self.backward_passes_per_step
        return loss

    def _combine(self, some: list[tuple]):
        deltas = [small for _, small, _ in some]
        each = [f"allreduce.{self._parameter_names[it]}" for it, _, _ in some]
        return reduce("allreduce", deltas, deltas, each, Adasum, 1.0, 1.0, global_process_set, finish=lambda _: None)

    def zero_grad(self, *args, **kwargs):
        """Clears gradients; AssertionError between a step's first backward pass and `step()`."""
        if self._is_counting():
            raise AssertionError(RACE)
        return super().zero_grad(*args, **kwargs)
