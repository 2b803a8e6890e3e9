"""Transformer layers, and how tensor ranks share their matrices. They are recognised by Hugging
Face's names, not by its classes.
"""

import weakref
from dataclasses import dataclass

from torch import nn

__all__ = ["FAMILIES", "Family", "family_of", "is_layer", "layers_of", "marked"]


@dataclass(frozen=True)
class Family:
    """Layers of one shape: the names of their matrices, within the layer."""

    name: str
    attention: str
    #: Split by rows of the weight: each tensor rank computes some heads, some columns of the
    #: middle.
    outward: tuple[str, ...]
    #: Split by columns of the weight: the ranks' outputs are added.
    inward: tuple[str, ...]

    def fits(self, layer: nn.Module) -> bool:
        """Whether a layer has all of them."""
        return all(_at(layer, it) is not None for it in (*self.outward, *self.inward))


FAMILIES = (
    Family(
        "Llama or Mistral",
        "self_attn",
        ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"),
        ("self_attn.o_proj", "mlp.down_proj"),
    ),
    Family(
        "GPT-NeoX",
        "attention",
        ("attention.query_key_value", "mlp.dense_h_to_4h"),
        ("attention.dense", "mlp.dense_4h_to_h"),
    ),
)

#: Layers that `transform` has seen.
marked: "weakref.WeakSet[nn.Module]" = weakref.WeakSet()


def family_of(layer: nn.Module) -> Family | None:
    """Whose matrices can be shared."""
    return next((it for it in FAMILIES if it.fits(layer)), None)


def is_layer(module: nn.Module) -> bool:
    """Whether it has an attention and a perceptron of its own."""
    names = {name for name, _ in module.named_children()}
    return bool(names & {"self_attn", "attention", "attn", "self_attention"}) and bool(
        names & {"mlp", "feed_forward", "block_sparse_moe"}
    )


def layers_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The transformer layers by name."""
    return [(name, it) for name, it in model.named_modules() if is_layer(it)]


def _at(layer: nn.Module, path: str) -> nn.Module | None:
    module: nn.Module | None = layer
    for name in path.split("."):
        module = getattr(module, name, None)
    return module if isinstance(module, nn.Linear) else None
