"""GPT-2: weights of transformers' GPT2LMHeadModel as those of DistributedTransformerLMHead, and
back, and the model in its distributed form under `smp.tensor_parallelism`.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from smdistributed.modelparallel.torch import registry
from smdistributed.modelparallel.torch.nn.transformer import DistributedTransformerLMHead

__all__ = [
    "DistributedGPT2LMHead",
    "register",
    "translate_hf_state_dict_to_smdistributed",
    "translate_hf_state_dict_to_smdistributed_gpt2",
    "translate_state_dict_to_hf_gpt2",
]

#: Names in a layer: theirs and ours, and whether theirs is the transposed matrix (their Conv1D has
#: [in, out]).
_LAYER = [
    ("ln_1.weight", "attention.pre_layernorm.weight", False),
    ("ln_1.bias", "attention.pre_layernorm.bias", False),
    ("attn.c_proj.weight", "attention.dense.weight", True),
    ("attn.c_proj.bias", "attention.dense.bias", False),
    ("ln_2.weight", "output.pre_layernorm.weight", False),
    ("ln_2.bias", "output.pre_layernorm.bias", False),
    ("mlp.c_fc.weight", "output.dense1.weight", True),
    ("mlp.c_fc.bias", "output.dense1.bias", False),
    ("mlp.c_proj.weight", "output.dense2.weight", True),
    ("mlp.c_proj.bias", "output.dense2.bias", False),
]
_ROOT = [
    ("transformer.wte.weight", "word_embedding.weight"),
    ("transformer.wpe.weight", "position_embedding.weight"),
    ("transformer.ln_f.weight", "layernorm.weight"),
    ("transformer.ln_f.bias", "layernorm.bias"),
]
_PARTS = ("query", "key", "value")


def _layers(state_dict: dict[str, Any], pattern: str) -> int:
    """The number of layers whose names the pattern matches, which has a layer's number as its
    group.
    """
    return 1 + max((int(it[1]) for name in state_dict if (it := re.match(pattern, name))), default=-1)


def translate_state_dict_to_hf_gpt2(state_dict: dict[str, Any], max_seq_len: int | None = None) -> dict[str, Any]:
    """A whole state of DistributedTransformerLMHead under the names of transformers. With
    `max_seq_len` the causal masks that older versions store are there, too. A state that has
    their names already stays as it is.
    """
    if "word_embedding.weight" not in state_dict:
        return dict(state_dict)
    found = {theirs: state_dict[ours] for theirs, ours in _ROOT}
    found["lm_head.weight"] = state_dict["word_embedding.weight"]
    for layer in range(_layers(state_dict, r"transformer\.seq_layers\.(\d+)\.")):
        ours, theirs = f"transformer.seq_layers.{layer}.", f"transformer.h.{layer}."
        for their_name, our_name, transposed in _LAYER:
            it = state_dict[ours + our_name]
            found[theirs + their_name] = it.t().contiguous() if transposed else it
        found[f"{theirs}attn.c_attn.weight"] = (
            torch.cat([state_dict[f"{ours}attention.{part}.weight"] for part in _PARTS]).t().contiguous()
        )
        found[f"{theirs}attn.c_attn.bias"] = torch.cat([state_dict[f"{ours}attention.{part}.bias"] for part in _PARTS])
        if max_seq_len is not None:
            found[f"{theirs}attn.bias"] = (
                torch.ones(max_seq_len, max_seq_len, dtype=torch.uint8).tril().view(1, 1, max_seq_len, max_seq_len)
            )
            found[f"{theirs}attn.masked_bias"] = torch.tensor(-1e4)
    return found


def translate_hf_state_dict_to_smdistributed(
    state_dict: dict[str, Any], max_seq_len: int | None = None
) -> dict[str, Any]:
    """The reverse: a whole state of transformers' GPT-2 for DistributedTransformerLMHead."""
    if "word_embedding.weight" in state_dict:
        return dict(state_dict)
    given = {
        name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}": it
        for name, it in state_dict.items()
    }
    found = {ours: given[theirs] for theirs, ours in _ROOT}
    for layer in range(_layers(given, r"transformer\.h\.(\d+)\.")):
        ours, theirs = f"transformer.seq_layers.{layer}.", f"transformer.h.{layer}."
        for their_name, our_name, transposed in _LAYER:
            it = given[theirs + their_name]
            found[ours + our_name] = it.t().contiguous() if transposed else it
        weights = given[f"{theirs}attn.c_attn.weight"].t().chunk(3)
        biases = given[f"{theirs}attn.c_attn.bias"].chunk(3)
        for part, weight, bias in zip(_PARTS, weights, biases, strict=True):
            found[f"{ours}attention.{part}.weight"], found[f"{ours}attention.{part}.bias"] = (
                weight.contiguous(),
                bias.contiguous(),
            )
    return found


translate_hf_state_dict_to_smdistributed_gpt2 = translate_hf_state_dict_to_smdistributed


def _arguments(config: Any, *_: Any, **__: Any) -> tuple[tuple, dict[str, Any]] | None:
    """Arguments of the distributed form, of a GPT2Config; none for activations that it lacks."""
    activation = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu"}.get(config.activation_function)
    if activation is None or getattr(config, "add_cross_attention", False):
        return None
    return (), {
        "num_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "attention_head_size": config.n_embd // config.n_head,
        "hidden_size": config.n_embd,
        "intermediate_size": config.n_inner or 4 * config.n_embd,
        "vocab_size": config.vocab_size,
        "num_positions": config.n_positions,
        "attention_dropout_prob": config.attn_pdrop,
        "hidden_dropout_prob": config.resid_pdrop,
        "embedding_dropout_prob": config.embd_pdrop,
        "activation": activation,
        "layernorm_epsilon": config.layer_norm_epsilon,
        "initializer_range": config.initializer_range,
        "use_normal_initialization": True,
        "causal_mask_size": config.n_positions,
        "pre_layernorm": True,
        "post_layernorm": False,
        "scale_attention_scores": config.scale_attn_weights,
    }


def _inputs(
    input_ids: torch.Tensor | None = None,
    past_key_values: Any = None,
    attention_mask: torch.Tensor | None = None,
    token_type_ids: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    labels: torch.Tensor | None = None,
    **_: Any,
) -> tuple[tuple, dict[str, Any]]:
    # Theirs has 1 where a token counts, ours where it is masked.
    mask = None if attention_mask is None or bool((attention_mask == 1).all()) else 1 - attention_mask
    return ((input_ids, mask, token_type_ids, position_ids, labels),), {}


def _output(found: Any) -> dict[str, torch.Tensor]:
    return {"loss": found[0], "logits": found[1]} if isinstance(found, tuple) else {"logits": found}


class DistributedGPT2LMHead(DistributedTransformerLMHead):
    """The distributed form of GPT2LMHeadModel. Full checkpoints have the names of transformers."""

    smp_translate_to_full = staticmethod(translate_state_dict_to_hf_gpt2)


def register(cls: type[torch.nn.Module] | None = None) -> None:
    """Makes transformers' GPT2LMHeadModel a DistributedGPT2LMHead under
    `smp.tensor_parallelism`, or `cls`, a class with its configuration and arguments; outputs are
    a dict of `loss` and `logits`.
    """
    if cls is None:
        from transformers import GPT2LMHeadModel as cls

    registry.tp_register_with_module(cls, DistributedGPT2LMHead, _arguments, _inputs, _output)
