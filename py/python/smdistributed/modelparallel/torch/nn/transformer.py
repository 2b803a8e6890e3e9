"""Transformers in parts: the feed-forward layer, a layer, a stack of layers, and a language
model.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.nn import collectives
from smdistributed.modelparallel.torch.nn.attention import DistributedAttentionLayer
from smdistributed.modelparallel.torch.nn.blocks import ACTIVATIONS, Block, check_settings
from smdistributed.modelparallel.torch.nn.layers import DistributedEmbedding, by_features
from smdistributed.modelparallel.torch.registry import Distributed, mark

__all__ = [
    "DistributedTransformer",
    "DistributedTransformerLMHead",
    "DistributedTransformerLayer",
    "DistributedTransformerOutputLayer",
]


class DistributedTransformerOutputLayer(Block):
    """The feed-forward layer: hidden to intermediate features in parts, and back. x is [N, S,
    H].
    """

    def __init__(
        self,
        hidden_size: int = 1024,
        intermediate_size: int = 4096,
        hidden_dropout_prob: float = 0.1,
        activation: str = "gelu",
        layernorm_epsilon: float = 1e-5,
        initializer_range: float = 0.02,
        use_normal_initialization: bool = False,
        pre_layernorm: bool = False,
        post_layernorm: bool = True,
        fp32_residual_addition: bool = False,
        inner: bool = False,
        **settings: Any,
    ) -> None:
        check_settings(self, settings)
        if activation not in ACTIVATIONS:
            raise SMPValidationError(
                f"{type(self).__name__}: activation {activation!r} is none of {', '.join(ACTIVATIONS)}"
            )
        super().__init__(
            hidden_size,
            layernorm_epsilon,
            pre_layernorm,
            post_layernorm,
            initializer_range if use_normal_initialization else None,
            inner,
        )
        self.dense1 = self._linear(hidden_size, intermediate_size, 0)
        self.dense2 = self._linear(intermediate_size, hidden_size, 1)
        self.activation, self.hidden_dropout_prob, self.fp32_residual_addition = (
            ACTIVATIONS[activation],
            hidden_dropout_prob,
            fp32_residual_addition,
        )

    def transform(self, hidden: torch.Tensor) -> torch.Tensor:
        """The layer, residual connection and normalizations."""
        x = hidden if self.pre_layernorm is None else self.pre_layernorm(hidden)
        x = self.end(self.activation(self.dense1(self.begin(x))), self.dense2)
        x = collectives.dropout(x, self.hidden_dropout_prob, self.training, split=False)
        x = (x.float() + hidden.float()).to(hidden.dtype) if self.fp32_residual_addition else x + hidden
        return x if self.layernorm is None else self.layernorm(x)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[N, S, H] of this rank's samples."""
        (hidden,) = self.outside(hidden)
        return self.inside(self.transform(hidden))


class DistributedTransformerLayer(Distributed):
    """A layer. It takes ONE tuple (hidden [N, S, H], additive mask [N, 1, 1, S]) and returns
    (hidden, mask); with `add_cross_attention` both have (hidden, cross_states, mask,
    cross_mask).
    """

    def __init__(
        self,
        num_attention_heads: int = 32,
        attention_head_size: int = 32,
        hidden_size: int = 1024,
        intermediate_size: int = 4096,
        attention_dropout_prob: float = 0.1,
        hidden_dropout_prob: float = 0.1,
        activation: str = "gelu",
        layernorm_epsilon: float = 1e-5,
        initializer_range: float = 0.02,
        use_normal_initialization: bool = False,
        causal_mask_size: int | None = None,
        add_cross_attention: bool = False,
        pre_layernorm: bool = False,
        post_layernorm: bool = True,
        attention_in_fp32: bool = False,
        query_key_layer_scaling: bool = False,
        scale_attention_scores: bool = True,
        fp32_residual_addition: bool = False,
        layer_idx: int | None = None,
        inner: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__()
        check_settings(self, settings)
        common = {
            "hidden_dropout_prob": hidden_dropout_prob, "layernorm_epsilon": layernorm_epsilon, "initializer_range": initializer_range,
            "use_normal_initialization": use_normal_initialization, "pre_layernorm": pre_layernorm, "post_layernorm": post_layernorm, "inner": True,
        }  # fmt: skip
        attention = {
            "attention_dropout_prob": attention_dropout_prob, "attention_in_fp32": attention_in_fp32, "layer_idx": layer_idx,
            "query_key_layer_scaling": query_key_layer_scaling, "scale_attention_scores": scale_attention_scores,
        }  # fmt: skip
        sizes = (num_attention_heads, attention_head_size, hidden_size)
        self.attention = DistributedAttentionLayer(*sizes, causal_mask_size=causal_mask_size, **attention, **common)
        self.cross_attention = (
            DistributedAttentionLayer(*sizes, cross_attention=True, **attention, **common)
            if add_cross_attention
            else None
        )
        self.output = DistributedTransformerOutputLayer(
            hidden_size,
            intermediate_size,
            activation=activation,
            fp32_residual_addition=fp32_residual_addition,
            **common,
        )
        self.inner = inner

    @classmethod
    def fits(
        cls,
        degree: int,
        num_attention_heads: int = 32,
        attention_head_size: int = 32,
        hidden_size: int = 1024,
        intermediate_size: int = 4096,
        **_: Any,
    ) -> bool:
        """Whether the degree divides heads and features."""
        return num_attention_heads % degree == 0 and intermediate_size % degree == 0 and hidden_size % degree == 0

    def forward(self, inputs: tuple) -> tuple:
        """A tuple of the same tensors, with new hidden states."""
        gather, back = (
            (_nothing, _nothing) if self.inner or collectives.mode() != "whole" else (_gather, collectives.own_batch)
        )
        if self.cross_attention is None:
            hidden, mask = inputs
            hidden = self.output.transform(self.attention.attend(gather(hidden), gather(mask)))
            return back(hidden), mask
        hidden, states, mask, cross_mask = inputs
        hidden = self.attention.attend(gather(hidden), gather(mask))
        hidden = self.cross_attention.attend(hidden, gather(cross_mask), gather(states))
        return back(self.output.transform(hidden)), states, mask, cross_mask


def _nothing(it: Any) -> Any:
    return it


def _gather(it: torch.Tensor | None) -> torch.Tensor | None:
    return None if it is None else collectives.gather_same(it) if it.requires_grad else collectives.gather_plain(it)


_LAYER = [
    name
    for name, it in inspect.signature(DistributedTransformerLayer.__init__).parameters.items()
    if it.kind is it.POSITIONAL_OR_KEYWORD and name not in ("self", "layer_idx", "inner")
]


class DistributedTransformer(Distributed):
    """`num_layers` layers one after the other, in `seq_layers`; arguments and tuples are those
    of DistributedTransformerLayer.
    """

    def __init__(self, num_layers: int = 12, *args: Any, inner: bool = False, **kwargs: Any) -> None:
        super().__init__()
        self.inner = inner
        self.seq_layers = nn.Sequential(
            *(DistributedTransformerLayer(*args, layer_idx=at, inner=True, **kwargs) for at in range(num_layers))
        )

    @classmethod
    def fits(cls, degree: int, num_layers: int = 12, *args: Any, **kwargs: Any) -> bool:
        """Whether the degree divides heads and features."""
        return DistributedTransformerLayer.fits(degree, *args[:4], **kwargs)

    def forward(self, inputs: tuple) -> tuple:
        """A tuple of the same tensors, with new hidden states."""
        if self.inner or collectives.mode() != "whole":
            return self.seq_layers(inputs)
        found = self.seq_layers(tuple(_gather(it) for it in inputs))
        return (collectives.own_batch(found[0]), *inputs[1:])


class DistributedTransformerLMHead(Distributed):
    """A language model. It takes one tuple (input_ids, attention_mask, token_type_ids,
    position_ids, labels), of which all but the first may be none; the mask is [N, S], 1 where
    MASKED. The language model's head is the word embedding and has no bias.

    Returns logits [N, S, vocabulary], with labels (loss, logits), and hidden states [N, S, H]
    without `add_lm_head`. Labels of -100 do not count; with `causal_mask_size` the label of a place
    is predicted from the place before it.
    """

    def __init__(
        self,
        num_layers: int = 12,
        num_attention_heads: int = 32,
        attention_head_size: int = 32,
        hidden_size: int = 1024,
        intermediate_size: int = 4096,
        vocab_size: int = 30522,
        num_positions: int = 1024,
        attention_dropout_prob: float = 0.1,
        hidden_dropout_prob: float = 0.1,
        activation: str = "gelu",
        layernorm_epsilon: float = 1e-5,
        num_token_types: int = 0,
        causal_mask_size: int | None = None,
        add_cross_attention: bool = False,
        add_lm_head: bool = True,
        initializer_range: float = 0.02,
        use_normal_initialization: bool = False,
        pre_layernorm: bool = False,
        post_layernorm: bool = True,
        embedding_dropout_prob: float = 0.1,
        attention_in_fp32: bool = False,
        query_key_layer_scaling: bool = False,
        scale_attention_scores: bool = True,
        fp32_residual_addition: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__()
        check_settings(self, settings)
        self.word_embedding = DistributedEmbedding(vocab_size, hidden_size, initializer_range=initializer_range)
        self.position_embedding = nn.Embedding(num_positions, hidden_size)
        self.token_type_embedding = nn.Embedding(num_token_types, hidden_size) if num_token_types > 0 else None
        for it in (self.position_embedding, self.token_type_embedding):
            if it is not None:
                nn.init.normal_(it.weight, 0.0, initializer_range)
        given = {name: value for name, value in locals().items() if name in _LAYER}
        self.transformer = DistributedTransformer(num_layers, **given)
        self.layernorm = nn.LayerNorm(hidden_size, layernorm_epsilon)
        self.final = pre_layernorm and not post_layernorm
        self.embedding_dropout_prob, self.add_lm_head, self.causal = (
            embedding_dropout_prob,
            add_lm_head,
            causal_mask_size is not None,
        )
        self.add_cross_attention, self.vocab_size = add_cross_attention, vocab_size
        for it in self.layernorm.parameters():
            mark(it, None)

    @classmethod
    def fits(cls, degree: int, num_layers: int = 12, *args: Any, **kwargs: Any) -> bool:
        """Whether the degree divides heads and features."""
        return DistributedTransformer.fits(degree, num_layers, *args, **kwargs)

    @property
    def reads_weights_of(self) -> tuple[str, ...]:
        """Children whose weights `forward` uses itself: the head is the word embedding."""
        return ("word_embedding",) if self.add_lm_head else ()

    def forward(self, inputs: tuple) -> Any:
        """Logits, or (loss, logits)."""
        cross = inputs[5:] if self.add_cross_attention else ()
        ids, mask, types, positions, labels = (*inputs, None, None, None, None)[:5]
        if positions is None:
            positions = torch.arange(ids.shape[-1], device=ids.device)
        x = self.word_embedding(ids) + self.position_embedding(positions)
        if self.token_type_embedding is not None and types is not None:
            x = x + self.token_type_embedding(types)
        if not self.final:
            x = self.layernorm(x)
        x = collectives.dropout(x, self.embedding_dropout_prob, self.training, split=False)
        if mask is not None:
            mask = mask[:, None, None, :].to(x.dtype) * torch.finfo(x.dtype).min / 2
        x = self.transformer((x, cross[0], mask, cross[1]) if cross else (x, mask))[0]
        if self.final:
            x = self.layernorm(x)
        if not self.add_lm_head:
            return x
        logits = by_features(x, self.word_embedding.weight)
        if labels is None:
            return logits
        scores, wanted = (logits[:, :-1], labels[:, 1:]) if self.causal else (logits, labels)
        loss = functional.cross_entropy(
            scores.float().reshape(-1, self.vocab_size), wanted.reshape(-1), ignore_index=-100
        )
        return loss, logits
