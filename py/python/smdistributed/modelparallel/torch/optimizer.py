"""`smp.DistributedOptimizer`: steps on this rank's part of the model, with loss scaling and
shards of the state where the configuration asks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from shoal.parallel import LossScale
from smdistributed.modelparallel.torch import norms
from smdistributed.modelparallel.torch.exceptions import (
    DistributedModelNotWrappedError,
    SMPRuntimeError,
    SMPValidationError,
)
from smdistributed.modelparallel.torch.masters import Groups, Masters, Plain, Shards
from smdistributed.modelparallel.torch.optimizer_state import exported, gathered, imported
from smdistributed.modelparallel.torch.state_mod import state

__all__ = ["DistributedOptimizer", "LossScaler"]


class LossScaler:
    """The factor of losses in float16: fixed, or as large as gradients allow
    (`shoal.parallel.LossScale`).
    """

    def __init__(self, static: float | None, dynamic: bool, options: dict[str, Any]) -> None:
        known = {
            "init_scale": 2.0**32,
            "scale_factor": 2.0,
            "scale_window": 1000,
            "min_scale": 1.0,
            "delayed_shift": 1,
            "consecutive_hysteresis": False,
        }
        for name in options:
            if name not in known:
                raise SMPValidationError(
                    f"DistributedOptimizer: there is no dynamic loss argument {name!r}; there are {', '.join(known)}"
                )
        known.update(options)
        self.dynamic = dynamic
        self.static = 1.0 if static is None else float(static)
        factor = float(known["scale_factor"])
        self._rule = LossScale(
            initial=float(known["init_scale"]),
            growth=factor,
            backoff=1 / factor,
            interval=int(known["scale_window"]),
            min=float(known["min_scale"]),
            tolerance=int(known["delayed_shift"]),
            consecutive=bool(known["consecutive_hysteresis"]),
        )

    @property
    def loss_scale(self) -> float:
        """The factor of losses."""
        return self._rule.scale if self.dynamic else self.static

    cur_scale = loss_scale

    def update(self, overflow: bool) -> None:
        """Adapts the factor after a step's gradients."""
        if self.dynamic:
            self._rule.add(not overflow)
            self._rule.step(overflow)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"dynamic": self.dynamic, "static": self.static, "rule": self._rule.state_dict()}

    def load_state_dict(self, found: dict[str, Any]) -> None:
        """Continues from a stored state."""
        self.dynamic, self.static = found["dynamic"], found["static"]
        self._rule.load_state_dict(found["rule"])


class _Methods:
    """Methods that override those of the user's class of optimizers; `_smp` has their state."""

    _smp: _Core

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step on this rank's part, unless a gradient overflowed (`overflow`). All ranks
        call this.
        """
        if closure is not None:
            raise SMPValidationError(
                "DistributedOptimizer.step: closures are not offered; call the step function first, then step()"
            )
        core = self._smp
        core.need_partition("step")
        if not core.before():
            return None
        result = super().step() if core.groups.any_parameters() else None
        core.groups.give_back()
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears gradients, also those of masters."""
        super().zero_grad(set_to_none)
        self._smp.zero_grad(set_to_none)

    def backward(self, loss: torch.Tensor, update_master_grads: bool = False) -> None:
        """`model.backward(loss)`; losses in float16 are scaled there."""
        state.model.backward(loss)
        if update_master_grads:
            self.update_master_grads()

    def update_master_grads(self) -> None:
        """Copies the gradients to the masters, without the loss scale, and checks whether they
        are finite. `step` does it, too.
        """
        self._smp.update()

    def clip_master_grads(self, max_norm: float, norm_type: float = 2.0) -> float:
        """Clips masters' gradients by the norm of the whole model's; returns that, or -1 if one
        overflowed. All ranks call this before `step`.
        """
        self._smp.update()
        return -1.0 if self._smp.overflow else self._smp.clip(max_norm, norm_type)

    @property
    def overflow(self) -> bool:
        """Whether the last step was skipped because gradients were not finite."""
        return self._smp.overflow

    @property
    def loss_scaler(self) -> LossScaler:
        """The factor of losses."""
        return self._smp.scaler

    @property
    def loss_scale(self) -> float:
        """The factor of losses."""
        return self._smp.scaler.loss_scale

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The user's optimizer, for schedulers; its groups are the same objects."""
        return self._smp.user

    @property
    def master_params(self) -> list[torch.nn.Parameter]:
        """The master parameters."""
        return [it for group in self.param_groups for it in group["params"]]

    def partition(self) -> None:
        """Called when the model is partitioned."""
        self._smp.partition()

    def refresh(self) -> None:
        """Called when the model's parameters were loaded."""
        self._smp.groups.refresh()

    def state_dict(self) -> dict[str, Any]:
        """The state of the whole model, by indices in the groups as the user gave them. All
        ranks call this; tensors are on the CPU.
        """
        return gathered(self._smp, self.local_state_dict())

    def local_state_dict(self, gather_if_shard: bool = True) -> dict[str, Any]:
        """The state of this rank's part. Where states are shards, those of all ranks with the
        same part are gathered (all of them call this), unless `gather_if_shard` is False.
        """
        return exported(self._smp, gather_if_shard)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state of `state_dict` or `local_state_dict`; it is kept until the model is
        partitioned.
        """
        imported(self._smp, state_dict)

    def __repr__(self) -> str:
        return f"Distributed{super().__repr__()}"


class _Core:
    """The state of a distributed optimizer beyond the user's."""

    def __init__(self, user: torch.optim.Optimizer, scaler: LossScaler) -> None:
        self.user = user
        self.scaler = scaler
        self.overflow = False
        self.updated = False
        self.partitioned = False
        self.pending: dict[str, Any] | None = None
        #: Of each group the parameters as the user gave them.
        self.given = [list(group["params"]) for group in user.param_groups]
        self.groups: Groups = Plain(user, [])
        model = state.model
        names = model.names
        unknown = [
            tuple(it.shape)
            for group in self.given
            for it in group
            if id(it) not in names and id(it) not in {id(x) for x in model.parameters()}
        ]
        if unknown:
            raise SMPValidationError(
                f"DistributedOptimizer: a parameter of shape {unknown[0]} is none of the model's: make the optimizer over model.parameters() of the "
                "smp.DistributedModel (tensor parallelism replaces modules)"
            )

    def need_partition(self, what: str) -> None:
        """Raises before the model is partitioned."""
        if not self.partitioned:
            raise SMPRuntimeError(
                f"DistributedOptimizer.{what}: the model is not partitioned yet; call a function under @smp.step first"
            )

    def partition(self) -> None:
        """Keeps the parameters of this rank's part in the user's groups."""
        model, cfg = state.model, state.cfg
        local = dict(model.named_parameters())
        ids = {id(it): it for it in local.values()}
        kept: list[list[tuple[int, torch.nn.Parameter]]] = []
        number = 0
        for parameters in self.given:
            own = []
            for it in parameters:
                found = ids.get(id(it))
                found = local.get(model.names.get(id(it), "")) if found is None else found
                if found is not None:
                    own.append((number, found))
                number += 1
            kept.append(own)
        sharded = cfg.sharded_data_parallel_degree > 1
        kind = Shards if cfg.shard_optimizer_state else Masters if cfg.half and not sharded else Plain
        self.groups = kind(self.user, kept)
        self.partitioned = True
        if self.pending is not None:
            pending, self.pending = self.pending, None
            imported(self, pending)

    @property
    def scaled(self) -> bool:
        """Whether losses are scaled."""
        return state.cfg.fp16

    def update(self) -> None:
        """Copies gradients to the masters."""
        if self.updated:
            return
        self.need_partition("update_master_grads")
        factor = 1.0
        self.overflow = False
        if self.scaled:
            self.overflow = not norms.finite([it.grad for it in self.groups.parameters() if it.grad is not None])
            factor = 1.0 / self.scaler.loss_scale
        self.groups.take(factor)
        self.updated = True

    def clip(self, max_norm: float, norm_type: float) -> float:
        """Clips by the whole model's norm."""
        total = self.groups.norm(norm_type)
        factor = max_norm / (total + 1e-6)
        if factor < 1.0:
            self.groups.multiply(factor)
        return total

    def before(self) -> bool:
        """Prepares a step. False if it is to be skipped."""
        self.update()
        self.updated = False
        if self.scaled:
            self.scaler.update(self.overflow)
        if self.overflow:
            return False
        if self.scaled and state.cfg.sharded_data_parallel_degree > 1 and state.cfg.sdp_gradient_clipping > 0:
            norms.clip(self.groups.parameters(), state.cfg.sdp_gradient_clipping)
        return True

    def zero_grad(self, set_to_none: bool) -> None:
        """Clears gradients, also of parameters that the optimizer does not see."""
        self.updated = False
        for it in self.groups.parameters():
            if it.grad is None:
                continue
            if set_to_none:
                it.grad = None
            else:
                it.grad.detach_().zero_()


def DistributedOptimizer(  # noqa: N802 (SageMaker's name)
    optimizer: torch.optim.Optimizer,
    static_loss_scale: float | None = 1.0,
    dynamic_loss_scale: bool = False,
    **dynamic_loss_args: Any,
) -> torch.optim.Optimizer:
    """The optimizer for a `smp.DistributedModel`; of the same class, with the same groups. Make the
    model first.

    In float16 losses are multiplied by `static_loss_scale`, or by a factor that grows while
    gradients are finite (`dynamic_loss_scale`; `init_scale`, `scale_factor`, `scale_window`,
    `min_scale`, `delayed_shift`, `consecutive_hysteresis`). The optimizer that is given must not
    step by itself any more.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise SMPValidationError(f"DistributedOptimizer: {type(optimizer).__name__} is no torch.optim.Optimizer")
    if hasattr(optimizer, "_smp"):
        raise SMPValidationError("DistributedOptimizer: the optimizer is distributed already")
    if state.model is None:
        raise DistributedModelNotWrappedError("DistributedOptimizer: make the smp.DistributedModel first")
    options = {**dynamic_loss_args.pop("dynamic_loss_args", {}), **dynamic_loss_args}
    kind = type(optimizer)
    made = type(kind.__name__, (_Methods, kind), {"__doc__": kind.__doc__, "__module__": kind.__module__})
    distributed = made.__new__(made)
    distributed.__dict__ = optimizer.__dict__
    # A scheduler that was made before has put the user's step there.
    optimizer.__dict__.pop("step", None)
    core = _Core(optimizer, LossScaler(static_loss_scale, dynamic_loss_scale, options))
    distributed._smp = core
    state.optimizer = distributed
    if state.loaded_optimizer_state is not None:
        core.pending, state.loaded_optimizer_state = state.loaded_optimizer_state, None
    if state.model.partitioned:
        core.partition()
    return distributed
