"""A small GPT's parts, and text of a job's channel as numbers: for the scripts of model parallelism beside it."""

import os

import torch
from torch import nn


def tokens():
    """Bytes of the channel's only file."""
    directory = os.environ["SM_CHANNEL_TRAIN"]
    [name] = os.listdir(directory)
    with open(os.path.join(directory, name), "rb") as file:
        return torch.frombuffer(bytearray(file.read(200_000)), dtype=torch.uint8).long().clamp(max=127)


def batches(rank, size, batch, length, count):
    """Inputs (batch x length) of one replica; labels are the same, a place further."""
    text = tokens()
    for step in range(count):
        begin = [((step * size + rank) * batch + row) * 37 % (len(text) - length - 1) for row in range(batch)]
        yield torch.stack([text[at : at + length] for at in begin]), torch.stack([text[at + 1 : at + length + 1] for at in begin])


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, h // self.heads).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, s, h))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, layers, width, heads, length, vocabulary=128):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class GPT(nn.Module):
    def __init__(self, layers=4, width=32, heads=4, length=32, vocabulary=128):
        super().__init__()
        self.transformer = Transformer(layers, width, heads, length, vocabulary)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, input_ids, labels):
        logits = self.lm_head(self.transformer(input_ids))
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
