"""The common part of attention and feed-forward layers: their begin, their end and their
settings.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.nn import collectives
from smdistributed.modelparallel.torch.nn.layers import divided, part, uniform
from smdistributed.modelparallel.torch.registry import Distributed, mark

__all__ = ["ACTIVATIONS", "Block", "check_settings"]

ACTIVATIONS = {"gelu": lambda x: functional.gelu(x, approximate="tanh"), "relu": functional.relu}
#: Choices of kernels, which do not change results here.
FUSED = {
    "fused_softmax",
    "fused_bias_gelu",
    "fused_dropout",
    "flash_attention",
    "mask_value",
    "parallel_attn_output",
    "_scale_qkv_fan_out",
    "zero_init",
    "distribute_embedding",
}


def check_settings(owner: object, settings: dict[str, Any]) -> None:
    """Raises for unknown settings, and for settings that would change results and are not
    offered.
    """
    for name, value in settings.items():
        if name in ("use_alibi", "rotary_dim", "gptj_residual", "window_size") and value:
            raise SMPValidationError(
                f"{type(owner).__name__}: {name} is not offered; use a module of your own with smp.nn.DistributedLinear"
            )
        if name not in FUSED and name not in ("use_alibi", "rotary_dim", "gptj_residual", "window_size"):
            raise TypeError(f"{type(owner).__name__}.__init__() got an unexpected keyword argument {name!r}")


class Block(Distributed):
    """A product whose first half has its outputs in parts, and whose second half its inputs
    (Shoeybi et al. 2019), with a residual connection and normalizations.

    `inner`: it stands in a larger distributed module, which has gathered the samples already.
    """

    def __init__(
        self, hidden: int, epsilon: float, pre_layernorm: bool, post_layernorm: bool, normal: float | None, inner: bool
    ) -> None:
        super().__init__()
        if not (pre_layernorm or post_layernorm):
            raise SMPValidationError(
                f"{type(self).__name__}: at least one of pre_layernorm and post_layernorm must be True"
            )
        self.hidden_size, self.inner, self._normal = hidden, inner, normal
        self.pre_layernorm = self._layernorm(epsilon) if pre_layernorm else None
        self.layernorm = self._layernorm(epsilon) if post_layernorm else None

    def _layernorm(self, epsilon: float) -> nn.LayerNorm:
        made = nn.LayerNorm(self.hidden_size, epsilon)
        for it in made.parameters():
            mark(it, None, collectives.mode() == "whole")
        return made

    def _linear(self, inputs: int, outputs: int, axis: int) -> nn.ParameterDict:
        """Weight [outputs, inputs] in parts along `axis`; a bias of parts of outputs is in
        parts, too.
        """
        normal = self._normal
        fill = uniform(inputs) if normal is None else (lambda it: it.normal_(0.0, normal))
        zero = uniform(inputs) if normal is None else nn.init.zeros_
        divided(outputs if axis == 0 else inputs, "features")
        bias = (
            part((outputs,), 0, zero)
            if axis == 0
            else part((outputs,), None, zero, scaled=collectives.mode() == "whole")
        )
        made = _Linear()
        made.weight, made.bias = part((outputs, inputs), axis, fill), bias
        return made

    def begin(self, x: torch.Tensor) -> torch.Tensor:
        """The tensor before the first half: of all samples that this rank sees."""
        return {"own": collectives.gather_batch, "whole": collectives.enter, "same": collectives.enter}[
            collectives.mode()
        ](x)

    def end(self, x: torch.Tensor, linear: nn.Module) -> torch.Tensor:
        """The second half."""
        found = functional.linear(x, linear.weight)
        found = (collectives.scatter_batch if collectives.mode() == "own" else collectives.leave)(found)
        return found + linear.bias

    def outside(self, *tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
        """Gathers all ranks' samples, if this is the outermost distributed module and the mode
        is `whole`.
        """
        if self.inner or collectives.mode() != "whole":
            return list(tensors)
        return [
            it
            if it is None
            else collectives.gather_same(it)
            if it.is_floating_point()
            else collectives.gather_plain(it)
            for it in tensors
        ]

    def inside(self, x: torch.Tensor) -> torch.Tensor:
        """Own samples of the result, where `outside` gathered all ranks'."""
        return x if self.inner or collectives.mode() != "whole" else collectives.own_batch(x)


class _Linear(nn.Module):
    """Weight and bias under their names."""

    weight: nn.Parameter
    bias: nn.Parameter

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The product with this rank's part."""
        return functional.linear(x, self.weight, self.bias)
