"""A transformer of Llama's shape, with Hugging Face's names, small enough for tests."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

WORDS = 11


class Config:
    hidden_size, num_attention_heads, num_key_value_heads, intermediate_size = 16, 4, 2, 24
    initializer_range, num_hidden_layers, rope_theta, attention_bias = 0.1, 2, 10000.0, False


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(Config.hidden_size))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        hidden, self.head_dim = Config.hidden_size, Config.hidden_size // Config.num_attention_heads
        self.num_heads = Config.num_attention_heads
        self.q_proj = nn.Linear(hidden, hidden, bias=False)
        self.k_proj = nn.Linear(hidden, Config.num_key_value_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, Config.num_key_value_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(hidden, hidden, bias=True)

    def forward(self, x):
        shape = (*x.shape[:2], -1, self.head_dim)
        q, k, v = (it(x).view(shape).transpose(1, 2) for it in (self.q_proj, self.k_proj, self.v_proj))
        assert q.shape[1] == self.num_heads
        it = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(it.transpose(1, 2).reshape(*x.shape[:2], -1))


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(Config.hidden_size, Config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(Config.hidden_size, Config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(Config.intermediate_size, Config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.mlp = Attention(), Perceptron()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(), RMSNorm()

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class TinyLlama(nn.Module):
    """Tokens to scores of the next; the embedding and the head share their weight if `tied`."""

    def __init__(self, tied=False):
        super().__init__()
        self.config = Config()
        self.embed_tokens = nn.Embedding(WORDS, Config.hidden_size)
        self.layers = nn.ModuleList([Layer() for _ in range(Config.num_hidden_layers)])
        self.norm = RMSNorm()
        self.lm_head = nn.Linear(Config.hidden_size, WORDS, bias=False)
        self.register_buffer("steps", torch.zeros(()))
        self.tied = tied
        self.tie_weights()

    def tie_weights(self):
        if self.tied:
            self.lm_head.weight = self.embed_tokens.weight

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for it in self.layers:
            x = it(x)
        return self.lm_head(self.norm(x))


def loss(model, tokens):
    """Of the next tokens, the mean."""
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
