"""Optimizers under the names of the fused kernels; the formulas are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["FusedAdam", "FusedLAMB", "FusedLamb", "FusedNovoGrad"]

FusedAdam = torch.optim.AdamW


class FusedLamb(torch.optim.Optimizer):
    """LAMB (You et al. 2020): Adam's direction, scaled to the parameter's norm. `max_grad_norm`:
    gradients of a group are first clipped to this norm; None for no clipping.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        set_grad_none: bool = True,
        max_grad_norm: float | None = 1.0,
        use_nvlamb: bool = False,
    ) -> None:
        if amsgrad or not adam_w_mode:
            raise ValueError(
                "FusedLamb: amsgrad and adam_w_mode=False are not offered; LAMB decays weights apart from the gradient"
            )
        defaults = {
            "lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "grad_averaging": grad_averaging, "max_grad_norm": max_grad_norm, "use_nvlamb": use_nvlamb,
        }  # fmt: skip
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            own = [it for it in group["params"] if it.grad is not None]
            if not own:
                continue
            one, two = group["betas"]
            group["step"] = group.get("step", 0) + 1
            norm = torch.stack([torch.linalg.vector_norm(it.grad.float()) for it in own]).norm()
            most = group["max_grad_norm"]
            factor = 1.0 if not most else float(torch.clamp(most / (norm + 1e-6), max=1.0))
            fix = [1 - beta ** group["step"] if group["bias_correction"] else 1.0 for beta in (one, two)]
            for it in own:
                state = self.state[it]
                if not state:
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(it), torch.zeros_like(it)
                grad = it.grad * factor
                state["exp_avg"].mul_(one).add_(grad, alpha=1 - one if group["grad_averaging"] else 1.0)
                state["exp_avg_sq"].mul_(two).addcmul_(grad, grad, value=1 - two)
                update = (state["exp_avg"] / fix[0]) / ((state["exp_avg_sq"] / fix[1]).sqrt() + group["eps"])
                update.add_(it, alpha=group["weight_decay"])
                ratio = 1.0
                if group["weight_decay"] or group["use_nvlamb"]:
                    weights, length = float(it.norm()), float(update.norm())
                    ratio = weights / length if weights > 0 and length > 0 else 1.0
                it.add_(update, alpha=-group["lr"] * ratio)
        return loss


FusedLAMB = FusedLamb


class FusedNovoGrad(torch.optim.Optimizer):
    """NovoGrad (Ginsburg et al. 2019): the second moment is one number for each parameter
    tensor.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.95, 0.98),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        reg_inside_moment: bool = False,
        grad_averaging: bool = True,
        norm_type: int = 2,
        init_zero: bool = False,
        set_grad_none: bool = True,
    ) -> None:
        if amsgrad:
            raise ValueError("FusedNovoGrad: amsgrad is not offered")
        defaults = {
            "lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "reg_inside_moment": reg_inside_moment, "grad_averaging": grad_averaging, "norm_type": norm_type, "init_zero": init_zero,
        }  # fmt: skip
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            one, two = group["betas"]
            group["step"] = group.get("step", 0) + 1
            fix = [1 - beta ** group["step"] if group["bias_correction"] else 1.0 for beta in (one, two)]
            for it in group["params"]:
                if it.grad is None:
                    continue
                state = self.state[it]
                norm = torch.linalg.vector_norm(it.grad.float(), group["norm_type"]) ** 2
                if not state:
                    state["exp_avg"] = torch.zeros_like(it)
                    state["exp_avg_sq"] = torch.zeros_like(norm) if group["init_zero"] else norm.clone()
                state["exp_avg_sq"].mul_(two).add_(norm, alpha=1 - two)
                grad = it.grad / ((state["exp_avg_sq"] / fix[1]).sqrt() + group["eps"])
                decay = group["weight_decay"]
                if decay and group["reg_inside_moment"]:
                    grad = grad.add(it, alpha=decay)
                state["exp_avg"].mul_(one).add_(grad, alpha=1 - one if group["grad_averaging"] else 1.0)
                update = state["exp_avg"] / fix[0]
                if decay and not group["reg_inside_moment"]:
                    update = update.add(it, alpha=decay)
                it.add_(update, alpha=-group["lr"])
        return loss
