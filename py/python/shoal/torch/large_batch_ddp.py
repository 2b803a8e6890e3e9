"""DistributedDataParallel in a large batch: it communicates in the last pass of a step only, and
averages over all passes of all ranks.

Annotations are no strings here: it checks those of hooks.
"""

import functools
import weakref
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from shoal.torch.backend import is_ours
from shoal.torch.hooks import Registered
from shoal.torch.large_batch_passes import Passes, of_model

__all__ = ["attach", "forward", "register_comm_hook"]


def attach(model: DistributedDataParallel, passes: Passes) -> None:
    """The model's gradients are those of these passes from now on."""
    if model._comm_hooks and not hasattr(model._comm_hooks[0][0], "_shoal_scales"):
        # It has a hook that averages over ranks already: what is left is done when the gradients
        # are complete.
        passes.reduce = functools.partial(_scale, model, passes)
    passes.own(model.parameters(), model)


def _scale(model: DistributedDataParallel, passes: Passes) -> None:
    gradients = [it.grad for it in model.parameters() if it.grad is not None]
    if gradients:
        torch._foreach_mul_(gradients, passes.factor)


def forward(original: Callable) -> Callable:
    """`DistributedDataParallel.forward`, without communication where this pass has none."""

    @functools.wraps(original)
    def forward(self: DistributedDataParallel, *inputs, **options):
        passes = of_model(self)
        if passes is None or not torch.is_grad_enabled():
            return original(self, *inputs, **options)
        passes.check_kept()
        if not self._comm_hooks:
            # Buckets of GPUs stay there: registered memory is the host's.
            on_host = all(it.device.type == "cpu" for it in self.parameters())
            original_register(
                self, _Scale(self), _scaled_in_registered_memory if on_host and is_ours(self.process_group) else _scaled
            )
        # The script's own no_sync stays in force.
        allowed = self.require_backward_grad_sync
        self.require_backward_grad_sync = allowed and passes.now.communicates
        try:
            return original(self, *inputs, **options)
        finally:
            self.require_backward_grad_sync = allowed

    return forward


original_register = DistributedDataParallel.register_comm_hook


def register_comm_hook(original: Callable) -> Callable:
    """`DistributedDataParallel.register_comm_hook`: the script's hook gets buckets that are
    divided by the passes.
    """

    @functools.wraps(original)
    def register_comm_hook(self: DistributedDataParallel, state: object, hook: Callable) -> None:
        if of_model(self) is None:
            return original(self, state, hook)
        model = weakref.ref(self)

        @functools.wraps(hook)
        def scaled(state, bucket):
            bucket.buffer().mul_(_factor(model))
            return hook(state, bucket)

        scaled._shoal_scales = True
        return original(self, state, scaled)

    return register_comm_hook


def _factor(model: weakref.ref[DistributedDataParallel]) -> float:
    """Of the accumulation that the model has now: it may be another one than when the hook was
    registered, or none.
    """
    passes = of_model(model())
    return 1.0 if passes is None else passes.factor


class _Scale(Registered):
    def __init__(self, model: DistributedDataParallel):
        super().__init__(model.process_group)
        # The model has this, in C++.
        self.model = weakref.ref(model)


def _scaled_in_registered_memory(state: _Scale, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The mean over passes and ranks; the division is done on the way to registered memory."""
    memory = state.memory(bucket)
    torch.mul(bucket.buffer(), _factor(state.model), out=memory)
    done = dist.all_reduce(memory, dist.ReduceOp.AVG, state.group, async_op=True).get_future()
    return done.then(lambda done: _passed(done, memory))


def _scaled(state: _Scale, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The same for groups of other backends, some of which only add."""
    buffer = bucket.buffer().mul_(_factor(state.model) / dist.get_world_size(state.group))
    done = dist.all_reduce(buffer, dist.ReduceOp.SUM, state.group, async_op=True).get_future()
    return done.then(lambda done: _passed(done, buffer))


_scaled_in_registered_memory._shoal_scales = _scaled._shoal_scales = True


def _passed(done: torch.futures.Future, buffer: torch.Tensor) -> torch.Tensor:
    done.value()
    return buffer
