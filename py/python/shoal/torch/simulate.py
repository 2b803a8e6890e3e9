"""`SHOAL_SIMULATE_INSTANCES=X`: scripts that know nothing of it train on the ranks of their job as
on X instances.

`shoal.backends` installs this when torch is imported in such a job. Then

- a DistributedDataParallel of the default group communicates and averages in the last pass of a
  step, and optimizers of its parameters step there;
- `shoal.torch.DistributedOptimizer` does the same, and so does any optimizer of a process that
  trains alone;
- a DataLoader with a DistributedSampler of all ranks reads what the X workers would, so that an
  epoch is a whole number of steps.

What is called once a pass acts once a step: see `large_batch_patches`. Anything else that trains on
several ranks is refused when its optimizer steps. `get_world_size()` is what it is: Y. Libraries
with optimizers of their own that exchange gradients call `adopt`.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import DataLoader, DistributedSampler

from shoal.comm import ConfigError
from shoal.parallel import Invalid, simulated_rate_factor, simulated_world
from shoal.parallel.simulated import rate_note
from shoal.torch import large_batch_ddp, large_batch_patches
from shoal.torch.large_batch_passes import Passes, inside
from shoal.torch.large_batch_sampler import LargeBatchSampler

__all__ = ["adopt", "install", "simulated"]

_VARIABLE = "SHOAL_SIMULATE_INSTANCES"
_installed = False
#: Accumulations live as long as the process: a script keeps none of them.
_kept: list[Passes] = []
_said = False


def simulated() -> int | None:
    """How many workers this process' job is to train as, if it is simulated."""
    return simulated_world(os.environ)


def _ranks() -> int | None:
    """How many ranks there are: of torch.distributed, else of Horovod; `None` before one of them
    has begun.
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    horovod = sys.modules.get("horovod.common.engine")
    if horovod is None or not horovod.started():
        return None
    engine = horovod.current()
    # Each simulated instance has as many ranks as this one.
    os.environ.setdefault("LOCAL_WORLD_SIZE", str(engine.local_size))
    return engine.size


def _statistics() -> str:
    return os.environ.get("SHOAL_SIMULATE_BATCH_STATISTICS", "every_pass")


def install() -> None:
    """Lets scripts train as more workers than there are ranks; the second time nothing is done."""
    global _installed
    if _installed:
        return
    _installed = True
    large_batch_patches.install()
    large_batch_patches.begin = _alone
    DistributedDataParallel.__init__ = _ddp_init(DistributedDataParallel.__init__)
    Optimizer._patch_step_function = _patch_step_function(Optimizer._patch_step_function)
    DataLoader.__init__ = _loader_init(DataLoader.__init__)


def adopt(
    optimizer: Optimizer,
    rank: int,
    ranks: int,
    reduce: Callable[[Passes], None],
    maximum: Callable[[torch.Tensor], None],
    parameters: Iterable[torch.Tensor] | None = None,
) -> Passes | None:
    """For an optimizer of another library (`horovod.torch`) that exchanges gradients among ranks of
    its own: in a job that is simulated, its `step` acts in the last pass only; `None` in others.

    `reduce` is called once behind that pass' backward, before gradients are unscaled, clipped or
    used: it makes them the mean over ranks of the passes' sums times `passes.factor`. `maximum`
    makes a tensor the greatest of all ranks'. The library's own accumulation has to take
    `passes.count` times as many backward passes.
    """
    if simulated() is None:
        return None
    install()
    passes = _passes(None, (rank, ranks))
    passes.reduce = functools.partial(reduce, passes)
    passes.maximum = maximum
    _own(passes, [it for part in optimizer.param_groups for it in part["params"]] if parameters is None else parameters)
    optimizer._shoal_passes = passes
    # Its class was perhaps made before.
    if not getattr(type(optimizer).step, "_shoal_counts", False):
        type(optimizer).step = _step(type(optimizer).step)
    return passes


def _passes(group: dist.ProcessGroup | None, place: tuple[int, int] | None = None) -> Passes:
    global _said
    try:
        passes = Passes(simulated(), group, _statistics(), place)
    except Invalid as error:
        # What the user has set.
        error.args = (str(error).replace("simulate:", f"{_VARIABLE}:", 1),)
        raise
    passes.rate_factor = simulated_rate_factor(os.environ, passes.plan.workers, passes.ranks)
    _kept.append(passes)
    if not _said and passes.rank == 0:
        _said = True
        many = "1 rank trains" if passes.ranks == 1 else f"{passes.ranks} ranks train"
        what = f"{many} as {passes.plan.workers} workers ({_VARIABLE}): {passes.count} passes for each step of the optimizer"
        rates = rate_note(passes.rate_factor, passes.plan.workers, "the size")
        print(
            f"shoal: {what}; zero_grad, clipping, GradScaler and schedulers act once a step, len(loader) counts passes; the world's size is still {passes.ranks}: {rates}",
            file=sys.stderr,
            flush=True,
        )
    return passes


def _ddp_init(original: Callable) -> Callable:
    @functools.wraps(original)
    def __init__(self: DistributedDataParallel, *arguments, **options) -> None:
        original(self, *arguments, **options)
        if dist.get_world_size(self.process_group) != dist.get_world_size():
            size = dist.get_world_size(self.process_group)
            raise ConfigError(
                f"{_VARIABLE}: DistributedDataParallel of a group of {size} of {dist.get_world_size()} ranks; one of all ranks can be simulated, others by shoal.torch.LargeBatch"
            )
        passes = _passes(self.process_group)
        large_batch_ddp.attach(self, passes)

    return __init__


def _patch_step_function(original: Callable) -> Callable:
    """Every optimizer's class comes through here: its `step` becomes one that counts passes."""

    @functools.wraps(original)
    def patch(self: Optimizer) -> None:
        original(self)
        kind = type(self)
        if not getattr(kind.step, "_shoal_counts", False):
            kind.step = _step(kind.step)

    return patch


def _step(original: Callable) -> Callable:
    @functools.wraps(original)
    def step(self: Optimizer, closure: Callable | None = None, *arguments, **options):
        with inside() as nested:
            passes = None if nested else large_batch_patches.counting(self)
            if passes is None:
                return original(self, *(() if closure is None else (closure,)), *arguments, **options)
        owner = passes.__dict__.setdefault("owner", self)
        if owner is not self:
            if passes.now.number:
                names = f"{type(owner).__name__} and {type(self).__name__}"
                raise ConfigError(
                    f"{_VARIABLE}: two optimizers, {names}, step parameters of one model in turns; use shoal.torch.LargeBatch for each, or one with two groups"
                )
            passes.owner = self
        return passes.attempt(self, functools.partial(original, self, *arguments, **options), closure)

    step._shoal_counts = True
    return step


def _alone(optimizer: Optimizer) -> Passes:
    """The accumulation of an optimizer without DistributedDataParallel, in a process that trains
    alone.
    """
    ranks = _ranks() or int(os.environ.get("WORLD_SIZE", "1") or 1)
    if ranks > 1:
        raise ConfigError(
            f"{_VARIABLE}: {type(optimizer).__name__} steps parameters that are in no DistributedDataParallel, on {ranks} ranks: their exchange (FSDP, or the script's own) is not known; "
            "use DistributedDataParallel, shoal.torch.DistributedOptimizer or shoal.torch.LargeBatch"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ConfigError(
            f"{_VARIABLE}: LBFGS evaluates its closure several times a step, so there are no passes to accumulate; use another optimizer"
        )
    parameters = [it for part in optimizer.param_groups for it in part["params"]]
    passes = _passes(None)

    def reduce() -> None:
        gradients = [it.grad for it in parameters if it.grad is not None]
        if gradients:
            torch._foreach_mul_(gradients, passes.factor)

    passes.reduce = reduce
    _own(passes, parameters)
    return passes


def _own(passes: Passes, parameters: Iterable[torch.Tensor]) -> None:
    """Gives the accumulation an optimizer's parameters. Their model is not known here: the
    layers whose statistics may have to rest are found by their parameters.
    """
    parameters = list(parameters)
    norms = []
    if _statistics() == "worker_0":
        theirs = {id(it) for it in parameters}
        layers = (it for it in gc.get_objects() if issubclass(type(it), _BatchNorm))
        norms = [it for it in layers if any(id(own) in theirs for own in it.parameters(recurse=False))]
        if not norms and passes.rank == 0:
            found = "found no layer with batch statistics and learned scales that this optimizer trains"
            print(
                f"shoal: SHOAL_SIMULATE_BATCH_STATISTICS=worker_0 {found}: running statistics move in every pass",
                file=sys.stderr,
                flush=True,
            )
    passes.own(parameters, norms=norms)


def _loader_init(original: Callable) -> Callable:
    @functools.wraps(original)
    def __init__(self: DataLoader, *arguments, **options) -> None:
        original(self, *arguments, **options)
        sampler, ranks = self.sampler, _ranks() or 1
        ours = isinstance(sampler, DistributedSampler) and sampler.num_replicas == ranks and self.batch_size is not None
        if ours and type(self.batch_sampler) is torch.utils.data.BatchSampler:
            batches = LargeBatchSampler(
                batch_size=self.batch_size,
                simulate=simulated(),
                drop_last=self.drop_last,
                ranks=ranks,
                rank=sampler.rank,
                sampler=sampler,
            )
            # A DataLoader refuses this by its __setattr__ once it is made.
            self.__dict__["batch_sampler"] = batches

    return __init__
