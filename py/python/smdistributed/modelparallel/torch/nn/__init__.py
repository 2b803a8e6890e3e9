"""Modules whose parameters the ranks of a tensor parallel group share."""

from torch import nn as _nn

from smdistributed.modelparallel.torch.nn import huggingface
from smdistributed.modelparallel.torch.nn.attention import DistributedAttentionLayer, FlashAttentionLayer
from smdistributed.modelparallel.torch.nn.layers import DistributedEmbedding, DistributedLinear, FusedLayerNorm
from smdistributed.modelparallel.torch.nn.transformer import (
    DistributedTransformer,
    DistributedTransformerLayer,
    DistributedTransformerLMHead,
    DistributedTransformerOutputLayer,
)
from smdistributed.modelparallel.torch.nn.utils import get_distribution_axis
from smdistributed.modelparallel.torch.registry import Distributed as DistributedModule
from smdistributed.modelparallel.torch.registry import tp_register_with_module as _register

DistributedLayerNorm = FusedLayerNorm

_register(_nn.Linear, DistributedLinear)
_register(
    _nn.Embedding,
    DistributedEmbedding,
    lambda *args, **kwargs: None if set(kwargs) - {"padding_idx"} or len(args) > 3 else (args, kwargs),
)

__all__ = [
    "DistributedAttentionLayer",
    "DistributedEmbedding",
    "DistributedLayerNorm",
    "DistributedLinear",
    "DistributedModule",
    "DistributedTransformer",
    "DistributedTransformerLMHead",
    "DistributedTransformerLayer",
    "DistributedTransformerOutputLayer",
    "FlashAttentionLayer",
    "FusedLayerNorm",
    "get_distribution_axis",
    "huggingface",
]
