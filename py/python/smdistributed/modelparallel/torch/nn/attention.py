"""Attention with heads in parts."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch.nn import collectives
from smdistributed.modelparallel.torch.nn.blocks import Block, check_settings
from smdistributed.modelparallel.torch.nn.layers import divided

__all__ = ["DistributedAttentionLayer", "FlashAttentionLayer"]


class DistributedAttentionLayer(Block):
    """Attention over the heads of this rank. `hidden` is [N, S, H], the additive mask [N, 1, 1,
    S]; `forward((hidden, mask))` returns [N, S, H], and with `cross_attention` it takes (hidden,
    cross_states, cross_mask).
    """

    def __init__(
        self,
        num_attention_heads: int = 32,
        attention_head_size: int = 32,
        hidden_size: int = 1024,
        attention_dropout_prob: float = 0.1,
        hidden_dropout_prob: float = 0.1,
        layernorm_epsilon: float = 1e-5,
        initializer_range: float = 0.02,
        use_normal_initialization: bool = False,
        cross_attention: bool = False,
        causal_mask_size: int | None = None,
        pre_layernorm: bool = False,
        post_layernorm: bool = True,
        attention_in_fp32: bool = False,
        query_key_layer_scaling: bool = False,
        scale_attention_scores: bool = True,
        layer_idx: int | None = None,
        inner: bool = False,
        **settings: Any,
    ) -> None:
        check_settings(self, settings)
        super().__init__(
            hidden_size,
            layernorm_epsilon,
            pre_layernorm,
            post_layernorm,
            initializer_range if use_normal_initialization else None,
            inner,
        )
        inside = num_attention_heads * attention_head_size
        self.heads, self.head_size = divided(num_attention_heads, "num_attention_heads"), attention_head_size
        self.query, self.key, self.value = (self._linear(hidden_size, inside, 0) for _ in range(3))
        self.dense = self._linear(inside, hidden_size, 1)
        self.attention_dropout_prob, self.hidden_dropout_prob = attention_dropout_prob, hidden_dropout_prob
        self.cross_attention, self.causal_mask_size = cross_attention, causal_mask_size
        self.attention_in_fp32 = attention_in_fp32
        self.scale = (1.0 / math.sqrt(attention_head_size)) if scale_attention_scores else 1.0
        #: Scores are divided by it before the product and multiplied in float32 after it, which
        #: matters in half precision only.
        self.layer_scale = float(layer_idx + 1) if query_key_layer_scaling and layer_idx is not None else 1.0

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, self.head_size).transpose(1, 2)

    def _scores(self, query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        if self.attention_in_fp32 or self.layer_scale != 1.0:
            query, key = query.float(), key.float()
        scores = (query * (self.scale / self.layer_scale)) @ key.transpose(-1, -2) * self.layer_scale
        if self.causal_mask_size is not None and not self.cross_attention:
            rows, columns = scores.shape[-2:]
            later = torch.ones(rows, columns, dtype=torch.bool, device=scores.device).triu(columns - rows + 1)
            scores = scores.masked_fill(later, torch.finfo(scores.dtype).min)
        return scores if mask is None else scores + mask.to(scores.dtype)

    def attend(
        self, hidden: torch.Tensor, mask: torch.Tensor | None, states: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Attention, residual connection and normalizations."""
        x = hidden if self.pre_layernorm is None else self.pre_layernorm(hidden)
        x = self.begin(x)
        other = x if states is None else self.begin(states)
        if mask is not None and collectives.mode() == "own":
            mask = collectives.gather_plain(mask)
        query, key, value = self._split(self.query(x)), self._split(self.key(other)), self._split(self.value(other))
        weights = torch.softmax(self._scores(query, key, mask), -1).to(value.dtype)
        weights = collectives.dropout(weights, self.attention_dropout_prob, self.training, split=True)
        found = (weights @ value).transpose(1, 2).flatten(2)
        found = (
            collectives.dropout(self.end(found, self.dense), self.hidden_dropout_prob, self.training, split=False)
            + hidden
        )
        return found if self.layernorm is None else self.layernorm(found)

    def forward(self, inputs: tuple) -> torch.Tensor:
        """[N, S, H] of this rank's samples."""
        if self.cross_attention:
            hidden, states, mask = self.outside(*inputs)
            return self.inside(self.attend(hidden, mask, states))
        hidden, mask = self.outside(*inputs)
        return self.inside(self.attend(hidden, mask))


class FlashAttentionLayer(nn.Module):
    """Attention of one rank by PyTorch's fused kernels. `qkv`: [N, S, 3, heads, head size];
    returns [N, S, heads, head size].
    """

    def __init__(
        self,
        attention_dropout_prob: float = 0.1,
        attention_head_size: int | None = None,
        scale_attention_scores: bool = True,
        scale_attn_by_layer_idx: bool = False,
        layer_idx: int | None = None,
        scale: float | None = None,
        triton_flash_attention: bool = False,
        use_alibi: bool = False,
    ) -> None:
        super().__init__()
        check_settings(self, {"use_alibi": use_alibi})
        self.attention_dropout_prob = attention_dropout_prob
        base = (
            1.0
            if not scale_attention_scores
            else None
            if attention_head_size is None
            else 1.0 / math.sqrt(attention_head_size)
        )
        self.scale = scale if scale is not None else base
        if scale_attn_by_layer_idx and layer_idx is not None and self.scale is not None:
            self.scale /= layer_idx + 1

    def forward(self, qkv: torch.Tensor, attn_mask: torch.Tensor | None = None, causal: bool = False) -> torch.Tensor:
        """`attn_mask` is added to the scores, [N, 1, 1 or S, S]."""
        query, key, value = (it.transpose(1, 2) for it in qkv.unbind(2))
        if attn_mask is not None and causal:
            rows = query.shape[-2]
            later = torch.full((rows, rows), float("-inf"), dtype=query.dtype, device=query.device).triu(1)
            attn_mask, causal = attn_mask.to(query.dtype) + later, False
        p = self.attention_dropout_prob if self.training else 0.0
        found = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, p, causal, scale=self.scale
        )
        return found.transpose(1, 2)
