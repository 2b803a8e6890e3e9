"""An optimizer that averages gradients over all ranks, in Horovod's manner."""

import os

import torch
import torch.distributed as dist

from shoal.comm import ConfigError
from shoal.parallel import simulated_rate_factor, simulated_world
from shoal.torch.backend import empty, is_ours
from shoal.torch.reach import broadcast, reaches


class _Bucket:
    """Gradients of some parameters of one device, side by side in one buffer: in registered
    memory, where the group has that and its operations do not reach the device.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], group: dist.ProcessGroup):
        self.parameters = parameters
        count, dtype, device = sum(it.numel() for it in parameters), parameters[0].dtype, parameters[0].device
        registered = is_ours(group) and (device.type == "cpu" or not reaches(group, device))
        self.buffer = (
            empty(count, dtype=dtype, group=group) if registered else torch.empty(count, dtype=dtype, device=device)
        )
        self.views = []
        at = 0
        for it in parameters:
            self.views.append(self.buffer[at : at + it.numel()].view(it.shape))
            at += it.numel()
        self.passes: dict[torch.nn.Parameter, int] = {}
        self.work: dist.Work | None = None


class _Exchange:
    """Averages gradients while the backward pass goes on: a bucket begins as soon as its last
    gradient is there.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], group, passes: int, scale: float, bucket_bytes: int):
        self.group, self.passes, self.scale = group, passes, scale
        self.buckets: list[_Bucket] = []
        self.next = 0
        self.hooks = []
        # Gradients come from the last layer to the first.
        waiting: dict[tuple[torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
        for it in reversed([it for it in parameters if it.requires_grad]):
            kind = it.dtype, it.device
            of_kind = waiting.setdefault(kind, [])
            of_kind.append(it)
            if sum(one.numel() * one.element_size() for one in of_kind) >= bucket_bytes:
                self.buckets.append(_Bucket(waiting.pop(kind), group))
        self.buckets += [_Bucket(rest, group) for rest in waiting.values()]
        for bucket in self.buckets:
            for it in bucket.parameters:
                self.hooks.append(
                    it.register_post_accumulate_grad_hook(lambda it, bucket=bucket: self._arrived(bucket, it))
                )

    def _arrived(self, bucket: _Bucket, parameter: torch.nn.Parameter) -> None:
        bucket.passes[parameter] = bucket.passes.get(parameter, 0) + 1
        if bucket.passes[parameter] > self.passes:
            what = f"{bucket.passes[parameter]} backward passes before a step where backward_passes_per_step is {self.passes}"
            raise ConfigError(
                f"DistributedOptimizer: {what}; call step() after every {self.passes}, or give another number"
            )
        self._begin_those_that_can()

    def _begin_those_that_can(self) -> None:
        # Always in the same order: all ranks must begin the same one.
        while self.next < len(self.buckets):
            bucket = self.buckets[self.next]
            if any(bucket.passes.get(it, 0) < self.passes for it in bucket.parameters):
                return
            self._begin(bucket)

    def _begin(self, bucket: _Bucket) -> None:
        self.next += 1
        with torch.no_grad():
            for it, view in zip(bucket.parameters, bucket.views, strict=True):
                if it.grad is None:
                    view.zero_()
                elif self.scale != 1.0 and it.grad.device == view.device:
                    torch.mul(it.grad, self.scale, out=view)
                else:
                    view.copy_(it.grad)
                    if self.scale != 1.0:
                        view.mul_(self.scale)
        bucket.work = dist.all_reduce(bucket.buffer, dist.ReduceOp.AVG, self.group, async_op=True)

    def finish(self) -> None:
        """All gradients are averages when this returns."""
        # Parameters that this pass did not use have no gradient here, but may have one on another
        # rank.
        while self.next < len(self.buckets):
            self._begin(self.buckets[self.next])
        for bucket in self.buckets:
            bucket.work.wait()
            with torch.no_grad():
                for it, view in zip(bucket.parameters, bucket.views, strict=True):
                    it.grad = view.to(it.device, copy=True) if it.grad is None else it.grad.copy_(view)
            bucket.work, bucket.passes = None, {}
        self.next = 0


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: torch.optim.Optimizer,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = True,
    group: dist.ProcessGroup | None = None,
    bucket_mb: float = 25.0,
    broadcast_parameters: bool = True,
) -> torch.optim.Optimizer:
    """The optimizer, with steps on the average of all ranks' gradients. Buckets of about
    `bucket_mb` MiB are reduced while the backward pass goes on.

    With `backward_passes_per_step` = n, gradients of n passes are added here before they are
    exchanged, and divided by n unless `average_aggregated_gradients` is False. The parameters of
    rank 0 are given to all ranks first, unless `broadcast_parameters` is False. The optimizer that
    is given must not be used by itself any more. In a job with SHOAL_SIMULATE_INSTANCES it is a
    `LargeBatch` of so many workers.
    """
    if backward_passes_per_step < 1:
        raise ConfigError(
            f"DistributedOptimizer: backward_passes_per_step is {backward_passes_per_step}; give 1 or more"
        )
    workers = simulated_world(os.environ)
    if workers is not None:
        from shoal.torch.large_batch import LargeBatch

        divided = 1 / backward_passes_per_step if average_aggregated_gradients else 1.0
        factor = simulated_rate_factor(os.environ, workers, dist.get_world_size(group))
        options = {
            "broadcast_parameters": broadcast_parameters,
            "bucket_mb": bucket_mb,
            "scale": divided,
            "rate_factor": factor,
        }
        return LargeBatch(optimizer, workers, group=group, **options)
    parameters = [it for part in optimizer.param_groups for it in part["params"]]
    group = dist.group.WORLD if group is None else group
    if broadcast_parameters:
        with torch.no_grad():
            for it in parameters:
                broadcast(it.data, group)
    scale = 1 / backward_passes_per_step if average_aggregated_gradients else 1.0
    exchange = _Exchange(parameters, group, backward_passes_per_step, scale, int(bucket_mb * 2**20))
    kind = type(optimizer)

    class Distributed(kind):
        """Averages gradients, then steps."""

        def step(self, closure=None):
            """One step on the averages."""
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
                exchange.finish()
                super().step()
                return loss
            exchange.finish()
            return super().step()

    Distributed.__name__ = Distributed.__qualname__ = f"Distributed{kind.__name__}"
    distributed = Distributed.__new__(Distributed)
    distributed.__dict__ = optimizer.__dict__
    distributed._exchange = exchange
    return distributed
