"""Llama's attention on `FlashGroupedQueryAttention`, to be put in place of Hugging Face's in a
layer.
"""

import torch
from torch import nn
from torch.sagemaker.nn.attn import FlashGroupedQueryAttention

__all__ = ["LlamaFlashAttention"]

_PLAIN_ROPE = (None, "default")


class LlamaFlashAttention(nn.Module):
    """`config`: Hugging Face's LlamaConfig. Names of parameters are Hugging Face's. For
    training: attention is causal, and there is no cache.
    """

    def __init__(self, config) -> None:
        super().__init__()
        self.config = config
        heads, hidden = config.num_attention_heads, config.hidden_size
        key_heads = getattr(config, "num_key_value_heads", None) or heads
        self.head_dim = getattr(config, "head_dim", None) or hidden // heads
        rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
        kind = rope.get("rope_type", rope.get("type"))
        if kind not in _PLAIN_ROPE:
            raise NotImplementedError(
                f"LlamaFlashAttention: rotary embeddings of type {kind!r}; use Hugging Face's attention, with attn_implementation='sdpa'"
            )
        self.theta = float(rope.get("rope_theta") or getattr(config, "rope_theta", 10000.0))
        bias = bool(getattr(config, "attention_bias", False))
        self.q_proj = nn.Linear(hidden, heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(hidden, key_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(hidden, key_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(heads * self.head_dim, hidden, bias=bias)
        self.flashattn = FlashGroupedQueryAttention(float(getattr(config, "attention_dropout", 0.0)))

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_value=None,
        output_attentions: bool = False,
        use_cache: bool = False,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        **_others,
    ):
        """The output (batch, sequence, hidden), and what Hugging Face's layer expects behind it:
        no weights, and (without `position_embeddings`, before transformers 4.48) no cache.
        `position_ids` (batch, sequence): 0, 1, .. if not given. Padding is not masked:
        `attention_mask` is causal or not given.
        """
        if output_attentions:
            raise ValueError(
                "LlamaFlashAttention: output_attentions=True: its kernels keep no weights; use Hugging Face's attention, with attn_implementation='eager'"
            )
        if past_key_value is not None and past_key_value.get_seq_length() > 0:
            raise ValueError(
                "LlamaFlashAttention: it is for training and has no cache; generate with Hugging Face's attention"
            )
        batch, length, _ = hidden_states.shape
        query, key, value = (
            projection(hidden_states).view(batch, length, -1, self.head_dim).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        cos, sin = self._rotation(hidden_states, position_ids) if position_embeddings is None else position_embeddings
        query, key = (_rotated(it, cos.unsqueeze(1), sin.unsqueeze(1)) for it in (query, key))
        output = self.flashattn(query, (key, value), causal=True, cast_dtype=value.dtype, layout="b h s d")
        output = self.o_proj(output.transpose(1, 2).reshape(batch, length, -1))
        return (output, None) if position_embeddings is not None else (output, None, past_key_value)

    def _rotation(
        self, hidden_states: torch.Tensor, position_ids: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        device = hidden_states.device
        if position_ids is None:
            position_ids = torch.arange(hidden_states.shape[1], device=device).unsqueeze(0)
        frequencies = self.theta ** (-torch.arange(0, self.head_dim, 2, device=device).float() / self.head_dim)
        angles = position_ids.unsqueeze(-1).float() * frequencies
        angles = torch.cat([angles, angles], -1)
        return angles.cos().to(hidden_states.dtype), angles.sin().to(hidden_states.dtype)


def _rotated(it: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = it.chunk(2, -1)
    return it * cos + torch.cat([-second, first], -1) * sin
