"""Large batch simulation: few ranks train as many workers would, sample for sample and step for
step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from shoal.comm import ConfigError
from shoal.torch import large_batch_ddp
from shoal.torch.large_batch_passes import BatchStatistics, Passes
from shoal.torch.large_batch_patches import install
from shoal.torch.large_batch_sampler import LargeBatchSampler, check_samplers
from shoal.torch.optimizer import _Exchange
from shoal.torch.reach import broadcast as broadcast_one

__all__ = ["LargeBatch", "LargeBatchSampler"]


class LargeBatch(torch.optim.Optimizer):
    """The optimizer, on Y ranks, as X = `simulate` workers would use it: each X / Y calls of `step`
    make one step.

        model = DistributedDataParallel(net)
        optimizer = LargeBatch(torch.optim.SGD(model.parameters(), lr=0.8), simulate=8, model=model)
        sampler = LargeBatchSampler(dataset, batch_size=32, simulate=8)
        for inputs, labels in DataLoader(dataset, batch_sampler=sampler):       # a pass each
            optimizer.zero_grad()
            loss(model(inputs), labels).backward()
            optimizer.step()

    Written as for one worker of X: the loss is the mean of a pass' samples, and `zero_grad`,
    `step`, clipping by `torch.nn.utils`, `GradScaler` and schedulers are called in every pass; they
    act when a step's passes are done. `optimizer.complete` says that they are. Gradients are then
    the mean over all X.

    `model`: a DistributedDataParallel, which then communicates in the last pass only. Without it,
    gradients are reduced here, in `group` (the default group; alone where there is none), behind
    the last pass. `batch_statistics="worker_0"`: running means and variances move in a rank's first
    pass only, so that rank 0 has those of worker 0. `scale`: gradients are multiplied by it, where
    a script accumulates over several backward passes for each call of `step`. `rate_factor`:
    learning rates are multiplied by it while the optimizer steps. The optimizer that is given must
    not be used by itself any more.

    Raises `shoal.parallel.Invalid` where the ranks do not divide `simulate`, `ConfigError` for what
    cannot be accumulated.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        simulate: int,
        model: nn.Module | None = None,
        group: dist.ProcessGroup | None = None,
        *,
        batch_statistics: BatchStatistics = "every_pass",
        broadcast_parameters: bool = True,
        bucket_mb: float = 25.0,
        scale: float = 1.0,
        rate_factor: float = 1.0,
    ):
        _refuse(optimizer, model)
        install()
        is_ddp = isinstance(model, DistributedDataParallel)
        self._inner = optimizer
        self._shoal_passes = passes = Passes(simulate, model.process_group if is_ddp else group, batch_statistics)
        passes.rate_factor = rate_factor
        parameters = [it for part in optimizer.param_groups for it in part["params"]]
        if is_ddp:
            its = set(map(id, model.parameters()))
            strangers = sum(id(it) not in its for it in parameters)
            if strangers:
                raise ConfigError(
                    f"LargeBatch: {strangers} of the optimizer's {len(parameters)} parameters are not the model's, which averages no others; make both of one model"
                )
            if scale != 1.0:
                raise ConfigError(
                    f"LargeBatch: scale is {scale} with a DistributedDataParallel; divide the loss instead"
                )
            large_batch_ddp.attach(model, passes)
        passes.own(parameters, model)
        if not is_ddp:
            self._reduce_by_itself(parameters, passes.factor * scale, broadcast_parameters, int(bucket_mb * 2**20))

    def _reduce_by_itself(
        self, parameters: list[torch.Tensor], factor: float, broadcast: bool, bucket_bytes: int
    ) -> None:
        passes = self._shoal_passes
        if passes.ranks == 1:

            def scale() -> None:
                gradients = [it.grad for it in parameters if it.grad is not None]
                if gradients and factor != 1.0:
                    torch._foreach_mul_(gradients, factor)

            passes.reduce = scale
            return
        if broadcast:
            with torch.no_grad():
                for it in parameters:
                    broadcast_one(it.data, passes.group)
        exchange = _Exchange(parameters, passes.group, 1, factor, bucket_bytes)
        # One exchange behind the last pass: hooks on each parameter would cost in every pass.
        for hook in exchange.hooks:
            hook.remove()
        passes.reduce = exchange.finish

    @property
    def passes(self) -> int:
        """Calls of `step` for each step of the optimizer."""
        return self._shoal_passes.count

    @property
    def worker(self) -> int:
        """Which of the X workers this pass is of."""
        return self._shoal_passes.now.worker

    @property
    def steps(self) -> int:
        """Steps of the optimizer so far; those that a loss scale skipped count, as schedules
        count them.
        """
        return self._shoal_passes.steps

    @property
    def complete(self) -> bool:
        """This pass is the last of its step: behind its backward pass gradients are complete."""
        return self._shoal_passes.now.communicates

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """A pass is over; steps if it was the last of X / Y. `closure` is called in every pass."""
        if self._shoal_passes.steps == 0 and self._shoal_passes.now.communicates:
            check_samplers(self._shoal_passes.plan.workers)
        return self._shoal_passes.attempt(self._inner, self._inner.step, closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears gradients, unless a step's passes are being accumulated."""
        if self._shoal_passes.now.number == 0:
            self._inner.zero_grad(set_to_none)

    def synchronize(self) -> None:
        """In the last pass, behind its backward pass: makes gradients the mean over all workers,
        for those that read them before `step`.
        """
        self._shoal_passes.complete()

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor | None:
        """Clips the complete gradient, and gives its norm before; nothing is done, and `None`
        given, in other passes.
        """
        if not self.complete:
            return None
        return nn.utils.clip_grad_norm_(
            [it for part in self.param_groups for it in part["params"]], max_norm, norm_type
        )

    # What is the optimizer's own stays there: schedulers and checkpoints see its groups and state.
    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of the optimizer."""
        return self._inner.param_groups

    @property
    def state(self) -> Any:
        """That of the optimizer."""
        return self._inner.state

    @property
    def defaults(self) -> dict[str, Any]:
        """Those of the optimizer."""
        return self._inner.defaults

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's. Save it between steps (`worker` is below the number of ranks):
        gradients of a part of the passes are not in it.
        """
        return self._inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the optimizer's."""
        self._inner.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused: what is exchanged is set up once."""
        raise ConfigError(
            "LargeBatch: parameters cannot be added; add them to the optimizer before it is given to LargeBatch"
        )

    def register_step_pre_hook(self, hook: Callable) -> Any:
        """Of the optimizer: called once a step."""
        return self._inner.register_step_pre_hook(hook)

    def register_step_post_hook(self, hook: Callable) -> Any:
        """Of the optimizer: called once a step."""
        return self._inner.register_step_post_hook(hook)

    def __repr__(self) -> str:
        return f"LargeBatch({self._shoal_passes.plan.workers} workers on {self._shoal_passes.ranks} ranks, {self._inner!r})"

    def __getstate__(self) -> dict[str, Any]:
        raise ConfigError("LargeBatch cannot be copied or pickled: save state_dict()")


def _refuse(optimizer: torch.optim.Optimizer, model: nn.Module | None) -> None:
    if not hasattr(optimizer, "param_groups"):
        raise ConfigError(f"LargeBatch: the optimizer is a {type(optimizer).__name__}; give a torch.optim.Optimizer")
    if isinstance(optimizer, LargeBatch):
        raise ConfigError("LargeBatch: the optimizer is a LargeBatch already; give it the number of all workers")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ConfigError(
            "LargeBatch: LBFGS evaluates its closure several times a step, so there are no passes to accumulate; give it the whole batch"
        )
    if hasattr(optimizer, "_exchange"):
        raise ConfigError(
            "LargeBatch: the optimizer is a DistributedOptimizer, which averages by itself; give the optimizer that is in it"
        )
    if type(model).__name__.startswith(("FSDP", "FullyShardedDataParallel")):
        raise ConfigError(
            "LargeBatch: FSDP shards gradients by itself; accumulate with its set_requires_gradient_sync() and divide the loss by the passes"
        )
