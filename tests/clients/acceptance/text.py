"""A small GPT-2 with the names and arguments of transformers, which PyTorch's image lacks, and
text of a job's channel: for the scripts of model parallelism.
"""

import math
import os
from dataclasses import dataclass

import torch
from torch import nn


def tokens():
    """Bytes of the channel's only file."""
    directory = os.environ["SM_CHANNEL_TRAIN"]
    [name] = os.listdir(directory)
    with open(os.path.join(directory, name), "rb") as file:
        return torch.frombuffer(bytearray(file.read(200_000)), dtype=torch.uint8).long().clamp(max=127)


def batches(rank, size, batch, length, count):
    """Tokens and attention masks (batch x length) of one replica."""
    text = tokens()
    for step in range(count):
        begin = [((step * size + rank) * batch + row) * 37 % (len(text) - length) for row in range(batch)]
        input_ids = torch.stack([text[at : at + length] for at in begin])
        yield input_ids, torch.ones_like(input_ids)


@dataclass
class GPT2Config:
    """Arguments of transformers' GPT2Config."""

    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 32
    n_positions: int = 32
    vocab_size: int = 128
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    attn_pdrop: float = 0.0
    resid_pdrop: float = 0.0
    embd_pdrop: float = 0.0
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    scale_attn_weights: bool = True


class Conv1D(nn.Module):
    """A linear layer whose weight is [in, out]."""

    def __init__(self, nf, nx):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(nx, nf)), nn.Parameter(torch.zeros(nf))
        nn.init.normal_(self.weight, std=1 / math.sqrt(nx))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn, self.c_proj = Conv1D(3 * config.n_embd, config.n_embd), Conv1D(config.n_embd, config.n_embd)
        self.heads = config.n_head

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = self.c_attn(x).view(b, s, 3, self.heads, h // self.heads).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(attended.transpose(1, 2).reshape(b, s, h))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(4 * config.n_embd, config.n_embd), Conv1D(config.n_embd, 4 * config.n_embd)

    def forward(self, x):
        return self.c_proj(nn.functional.gelu(self.c_fc(x), approximate="tanh"))


class GPT2Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn, self.mlp = Attention(config), MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte, self.wpe = (
            nn.Embedding(config.vocab_size, config.n_embd),
            nn.Embedding(config.n_positions, config.n_embd),
        )
        for it in (self.wte, self.wpe):
            nn.init.normal_(it.weight, std=config.initializer_range)
        self.h = nn.ModuleList(GPT2Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)

    def forward(self, input_ids):
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1], device=input_ids.device))
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class GPT2LMHeadModel(nn.Module):
    """Its masks are all ones. The labels are the tokens: each is predicted from those before it."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = GPT2Model(config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.tie_weights()

    def tie_weights(self):
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = self.lm_head(self.transformer(input_ids))
        if labels is None:
            return {"logits": logits}
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"loss": loss, "logits": logits}
