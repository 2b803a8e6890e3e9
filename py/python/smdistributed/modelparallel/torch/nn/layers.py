"""Linear layers and embeddings in parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from smdistributed.modelparallel.torch import ranks
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.nn import collectives
from smdistributed.modelparallel.torch.registry import Distributed, mark

__all__ = ["DistributedEmbedding", "DistributedLinear", "FusedLayerNorm", "divided", "part"]

#: PyTorch's; the fused kernel computes the same.
FusedLayerNorm = nn.LayerNorm


def divided(number: int, what: str) -> int:
    """`number` over the tensor parallel ranks."""
    degree = ranks.tp_size()
    if number % degree:
        raise SMPValidationError(f"tensor_parallel_degree {degree} does not divide {what} {number}; use one that does")
    return number // degree


def part(
    shape: tuple[int, ...], axis: int | None, fill: Callable[[torch.Tensor], Any], scaled: bool = True
) -> nn.Parameter:
    """This rank's part of a parameter that is initialized as a whole, by the same random numbers
    on all ranks.
    """
    whole = torch.empty(shape)
    with torch.no_grad():
        fill(whole)
    if axis is not None:
        divided(shape[axis], "a parameter's size")
        whole = whole.chunk(ranks.tp_size(), axis)[ranks.tp_rank()].clone(memory_format=torch.contiguous_format)
    return mark(nn.Parameter(whole), axis, scaled)


def uniform(fan_in: int) -> Callable[[torch.Tensor], Any]:
    """torch's initialization of linear layers."""
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return lambda it: it.uniform_(-bound, bound)


class DistributedLinear(Distributed):
    """`nn.Linear` with input features in parts: weight [out, in/t]. x is [.., in], the result
    [.., out]. The bias is whole on each rank.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, init: Callable[[torch.Tensor], Any] | None = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = part((out_features, in_features), 1, init or uniform(in_features))
        self.bias = (
            part((out_features,), None, uniform(in_features) if init is None else nn.init.zeros_, scaled=False)
            if bias
            else None
        )

    @classmethod
    def fits(cls, degree: int, in_features: int, out_features: int, bias: bool = True, **_: Any) -> bool:
        """Whether the degree divides the input features."""
        return in_features % degree == 0

    def match(self, it: nn.Linear) -> None:
        """Takes another one's weights."""
        with torch.no_grad():
            self.weight.copy_(it.weight.chunk(ranks.tp_size(), 1)[ranks.tp_rank()])
            if self.bias is not None:
                self.bias.copy_(it.bias)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The product for this rank's samples."""
        found = by_features(input, self.weight)
        return found if self.bias is None else found + self.bias

    def extra_repr(self) -> str:
        """For people."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def by_features(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x times the weight whose input features are in parts; of own samples, or of those that all
    ranks have.
    """
    if collectives.mode() == "same":
        return collectives.leave(functional.linear(collectives.slice_last(input), weight))
    if input.dim() == 1:
        raise SMPValidationError(
            "DistributedLinear: an input without a dimension of samples; give [samples, .., features]"
        )
    return collectives.scatter_batch(functional.linear(collectives.to_slices(input), weight))


class DistributedEmbedding(Distributed):
    """`nn.Embedding` with features in parts: weight [num, dim/t]."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        initializer_range: float = 1.0,
        _skip_allgather: bool = False,
        _skip_scatter_and_merge: bool = False,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx if padding_idx is None or padding_idx >= 0 else num_embeddings + padding_idx
        self.weight = part((num_embeddings, embedding_dim), 1, self._fill(initializer_range))

    def _fill(self, deviation: float) -> Callable[[torch.Tensor], Any]:
        def fill(it: torch.Tensor) -> None:
            it.normal_(0.0, deviation)
            if self.padding_idx is not None:
                it[self.padding_idx].zero_()

        return fill

    @classmethod
    def fits(cls, degree: int, num_embeddings: int, embedding_dim: int, *_: Any, **__: Any) -> bool:
        """Whether the degree divides the features."""
        return embedding_dim % degree == 0

    def match(self, it: nn.Embedding) -> None:
        """Takes another one's weights."""
        with torch.no_grad():
            self.weight.copy_(it.weight.chunk(ranks.tp_size(), 1)[ranks.tp_rank()])

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Vectors of this rank's samples."""
        if collectives.mode() == "same":
            return collectives.gather_last(functional.embedding(input, self.weight, self.padding_idx))
        return collectives.from_slices(
            functional.embedding(collectives.gather_plain(input), self.weight, self.padding_idx)
        )

    def extra_repr(self) -> str:
        """For people."""
        return f"{self.num_embeddings}, {self.embedding_dim}"
