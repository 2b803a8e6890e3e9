"""Where an accumulation is: which pass of which step of the optimizer this rank runs, and when
gradients are complete. Rules are `shoal.parallel.Accumulation`'s.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.weak import WeakIdKeyDictionary

from shoal.comm import ConfigError
from shoal.parallel import Accumulation
from shoal.torch.reach import all_reduce

__all__ = ["BatchStatistics", "Passes", "inside", "of_model", "of_parameters"]

#: Which passes move running means and variances: all, or a rank's first one (rank 0's is worker 0,
#: whose statistics X ranks would keep).
BatchStatistics = Literal["every_pass", "worker_0"]

#: Accumulations by parameter and by model, while they exist. They are not attributes of tensors and
#: modules, which would go into copies and checkpoints.
_of_parameter: WeakIdKeyDictionary = WeakIdKeyDictionary()
_of_model: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
_within = threading.local()


def of_parameters(parameters: Iterable[torch.Tensor]) -> Passes | None:
    """The accumulation that the first of these parameters belongs to that belongs to one."""
    return next((found for it in parameters if (found := _living(_of_parameter.get(it))) is not None), None)


def of_model(model: nn.Module) -> Passes | None:
    """The accumulation of a DistributedDataParallel."""
    return _living(_of_model.get(model))


def _living(reference: weakref.ref[Passes] | None) -> Passes | None:
    return None if reference is None else reference()


@contextmanager
def inside() -> Iterator[bool]:
    """Marks what an accumulation calls itself; gives whether this is within such a call already."""
    before = getattr(_within, "calls", False)
    _within.calls = True
    try:
        yield before
    finally:
        _within.calls = before


@contextmanager
def _scaled_rates(optimizer: torch.optim.Optimizer, factor: float) -> Iterator[None]:
    """Multiplies the optimizer's learning rates for a step; schedules and checkpoints see the
    script's own.
    """
    rates = [(group, group["lr"]) for group in optimizer.param_groups] if factor != 1.0 else []
    for group, rate in rates:
        group["lr"] = rate * factor
    try:
        yield
    finally:
        for group, rate in rates:
            group["lr"] = rate


class Passes:
    """The passes of this rank, which call `step` of an optimizer once each. A step of the
    optimizer is their last.
    """

    def __init__(
        self,
        simulate: int,
        group: dist.ProcessGroup | None = None,
        statistics: BatchStatistics = "every_pass",
        place: tuple[int, int] | None = None,
    ):
        """`place`: rank and number of ranks, where they are not those of a process group."""
        if statistics not in ("every_pass", "worker_0"):
            raise ConfigError(f'batch_statistics is {statistics!r}: it is "every_pass" or "worker_0"')
        started = place is None and dist.is_available() and dist.is_initialized()
        #: The ranks; `None`: this process alone, or ranks of another library.
        self.group = (dist.group.WORLD if group is None else group) if started else None
        if place is None:
            place = (dist.get_rank(self.group), dist.get_world_size(self.group)) if started else (0, 1)
        self.rank, self.ranks = place
        self.plan = Accumulation(simulate, self.ranks)
        #: What learning rates are multiplied by in a step.
        self.rate_factor = 1.0
        #: Passes of each step.
        self.count = self.plan.passes(self.rank)
        #: Passes done, and steps of which all passes are done: skipped ones, too.
        self.done = self.steps = 0
        self.now = self.plan.at(self.rank, 0)
        #: Makes the passes' summed gradients the mean over all workers, where nothing else does.
        self.reduce: Callable[[], None] | None = None
        #: Makes a number the greatest of all ranks', in place.
        self.maximum: Callable[[torch.Tensor], None] = self._maximum
        self._complete = False
        self._statistics = statistics
        self._norms: list[_BatchNorm] = []
        self._parameters: list[torch.Tensor] = []
        self._kept: tuple[torch.Tensor, torch.Tensor] | None = None

    @property
    def factor(self) -> float:
        """What gradients that are summed over passes and averaged over ranks are multiplied by."""
        return self.plan.factor("average")

    def _maximum(self, number: torch.Tensor) -> None:
        if self.group is not None and self.ranks > 1:
            all_reduce(number, dist.ReduceOp.MAX, self.group)

    def own(
        self,
        parameters: Iterable[torch.Tensor],
        model: nn.Module | None = None,
        norms: Iterable[_BatchNorm] | None = None,
    ) -> None:
        """These are the parameters that it accumulates gradients of, and their model, or that
        model's layers with batch statistics.
        """
        self._parameters = list(parameters)
        for it in self._parameters:
            _of_parameter[it] = weakref.ref(self)
        if model is not None:
            _of_model[model] = weakref.ref(self)
            norms = (it for it in model.modules() if isinstance(it, _BatchNorm))
        if norms is not None:
            self._norms = [it for it in norms if it.track_running_stats]
        elif self._statistics == "worker_0":
            raise ConfigError('batch_statistics="worker_0" wants model=, whose layers they are')

    def attempt(
        self, optimizer: torch.optim.Optimizer, step: Callable[[], object], closure: Callable[[], object] | None = None
    ) -> object:
        """The script steps: a pass is over. Runs `step` if it was the last of the optimizer's
        step.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        result = None
        if self.now.communicates:
            self.complete()
            with inside(), _scaled_rates(optimizer, self.rate_factor):
                result = step()
        self.advance()
        return result if closure is None else loss

    def complete(self) -> None:
        """In the last pass, behind its backward: gradients are the mean over all workers when
        this returns. Does nothing the second time.
        """
        if self.now.communicates and not self._complete:
            self.check_kept()
            if self.reduce is not None:
                self.reduce()
            self._complete = True

    def advance(self) -> None:
        """A pass is over, whether its step was done, skipped or is to come."""
        self.check_kept()
        self.done += 1
        self.steps += self.now.communicates
        self.now = self.plan.at(self.rank, self.done)
        self._complete = False
        if self.now.number:
            kept = ((it, it.grad) for it in self._parameters if it.grad is not None)
            self._kept = next((pair for pair in kept if not pair[1].is_sparse and not pair[1].requires_grad), None)
        if self._statistics == "worker_0":
            for norm in self._norms:
                norm.track_running_stats = self.now.number == 0

    def check_kept(self) -> None:
        """Raises where the gradients of earlier passes were thrown away by other means than
        `zero_grad`, which waits for the step's end. Looks once a pass: DistributedDataParallel
        replaces gradients by its buckets in a backward pass.
        """
        kept, self._kept = self._kept, None
        if kept is not None and kept[0].grad is not kept[1]:
            problem = f"gradients of the first {self.now.number} of {self.count} passes are gone: a script that trains as {self.plan.workers} workers"
            raise ConfigError(
                f"large batch: {problem} must clear them by zero_grad(), which waits for the step's end, and not by itself"
            )
