"""Attention by torch's scaled_dot_product_attention, which takes the fastest kernel that the
device has.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 (torch's name)

__all__ = ["FlashGroupedQueryAttention", "FlashSelfAttention"]

_LAYOUTS = {"b h s d": 1, "b s h d": 2}

Tensors = torch.Tensor | tuple[torch.Tensor, ...] | list[torch.Tensor]


def _parts(packed: Tensors, count: int, layout: str, what: str) -> list[torch.Tensor]:
    """As (batch, heads, sequence, head size)."""
    if layout not in _LAYOUTS:
        raise ValueError(f"layout={layout!r}: it is 'b h s d' or 'b s h d'")
    heads = _LAYOUTS[layout]
    if isinstance(packed, torch.Tensor):
        if packed.dim() != 4 or packed.shape[heads] % count:
            raise ValueError(
                f"{what} has shape {tuple(packed.shape)}: in layout '{layout}', dimension {heads} is {count} times the number of heads"
            )
        packed = packed.chunk(count, heads)
    if len(packed) != count:
        raise ValueError(f"{what} are {len(packed)} tensors where {count} are expected")
    return [it if heads == 1 else it.transpose(1, 2) for it in packed]


class FlashSelfAttention(nn.Module):
    """Self-attention. `scale`: of the scores; 1/sqrt(head size) if not given. `use_alibi` takes
    an additive mask, and needs `triton_flash_attention`, which has no dropout.
    """

    def __init__(
        self,
        attention_dropout_prob: float = 0.0,
        scale: float | None = None,
        triton_flash_attention: bool = False,
        use_alibi: bool = False,
    ) -> None:
        super().__init__()
        if use_alibi and not triton_flash_attention:
            raise ValueError("FlashSelfAttention: use_alibi=True needs triton_flash_attention=True")
        if triton_flash_attention and attention_dropout_prob > 0:
            raise ValueError(
                f"FlashSelfAttention: attention_dropout_prob={attention_dropout_prob}: with triton_flash_attention=True there is no dropout; give 0"
            )
        self.attention_dropout_prob, self.scale = attention_dropout_prob, scale
        self.triton_flash_attention, self.use_alibi = triton_flash_attention, use_alibi

    def forward(
        self,
        qkv: Tensors,
        attn_mask: torch.Tensor | None = None,
        causal: bool = False,
        cast_dtype: torch.dtype | None = None,
        layout: str = "b h s d",
    ) -> torch.Tensor:
        """(batch, heads, sequence, head size). `qkv`: one tensor with three times the heads, or
        three tensors. `attn_mask` (batch or 1, heads or 1, 1 or sequence, sequence) is added to
        the scores. `cast_dtype`: what `qkv` is made first.
        """
        query, key, value = _cast(_parts(qkv, 3, layout, "qkv"), cast_dtype)
        if attn_mask is not None:
            if not self.use_alibi:
                raise ValueError(
                    "FlashSelfAttention: attn_mask needs triton_flash_attention=True and use_alibi=True; causal=True masks what is later"
                )
            attn_mask = attn_mask.to(query.dtype)
            if causal:
                length = query.shape[2]
                later = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
                attn_mask = attn_mask.expand(-1, -1, length, -1).masked_fill(later, float("-inf"))
                causal = False
        dropout = self.attention_dropout_prob if self.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout, causal, scale=self.scale)


class FlashGroupedQueryAttention(nn.Module):
    """Attention whose keys and values serve several heads of queries each."""

    def __init__(self, attention_dropout_prob: float = 0.0, scale: float | None = None) -> None:
        super().__init__()
        self.attention_dropout_prob, self.scale = attention_dropout_prob, scale

    def forward(
        self,
        q: torch.Tensor,
        kv: Tensors,
        causal: bool = False,
        cast_dtype: torch.dtype | None = None,
        layout: str = "b s h d",
    ) -> torch.Tensor:
        """(batch, heads, sequence, head size). `kv`: one tensor with two times the heads of
        keys, or two tensors.
        """
        query = _cast(_parts(q, 1, layout, "q"), cast_dtype)[0]
        key, value = _cast(_parts(kv, 2, layout, "kv"), cast_dtype)
        if query.shape[1] % key.shape[1]:
            raise ValueError(
                f"FlashGroupedQueryAttention: {query.shape[1]} heads of queries, {key.shape[1]} of keys; the first must be a multiple of the second"
            )
        dropout = self.attention_dropout_prob if self.training else 0.0
        return F.scaled_dot_product_attention(
            query, key, value, None, dropout, causal, scale=self.scale, enable_gqa=query.shape[1] != key.shape[1]
        )


def _cast(tensors: list[torch.Tensor], dtype: torch.dtype | None) -> list[torch.Tensor]:
    return tensors if dtype is None else [it.to(dtype) for it in tensors]
