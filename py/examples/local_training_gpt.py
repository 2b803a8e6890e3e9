"""A small GPT on tiny-shakespeare, trained synchronously and with little communication: loss,
bytes, and the time that slow networks would add.

`torchrun --nproc-per-node 4 local_training_gpt.py --data input.txt [--steps 400] [--seeds 3]`.
Every method reads the same samples: those of a rank are drawn by seed and rank. Prints a table and
writes `--json`. Bytes are counted where they are given to the process group. No network is
emulated: the seconds on a wire are computed, bytes of the rank that sends most by bandwidth,
without latency and as if nothing overlapped; computing time is measured on this machine.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import shoal.torch  # noqa: F401 (registers the backend)
from shoal.parallel import Rate
from shoal.torch import LocalTraining

METHODS = {
    "synchronous": None,
    "post-local SGD, every 50, float32": {"method": "post_local_sgd", "every": 50},
    "DiLoCo, every 50, float32": {"method": "diloco", "every": 50},
    "DiLoCo, every 25, bfloat16": {"method": "diloco", "every": 25, "wire": "bf16"},
    "DiLoCo, every 20, int8": {"method": "diloco", "every": 20, "wire": "int8"},
    "streaming DiLoCo, every 20, 2 fragments, int8": {
        "method": "diloco",
        "every": 20,
        "wire": "int8",
        "fragments": 2,
        "delay": 2,
    },
}


class Gpt(nn.Module):
    """A decoder of transformer layers with learned positions."""

    def __init__(self, vocabulary: int, width: int = 64, depth: int = 2, heads: int = 4, context: int = 64):
        super().__init__()
        self.context = context
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        layers = [
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        ]
        self.layers, self.norm, self.head = nn.ModuleList(layers), nn.LayerNorm(width), nn.Linear(width, vocabulary)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context), persistent=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.shape[1]
        hidden = self.tokens(text) + self.positions(torch.arange(length))
        for layer in self.layers:
            hidden = layer(hidden, src_mask=self.mask[:length, :length], is_causal=True)
        return self.head(self.norm(hidden))


def encoded(path: Path) -> tuple[torch.Tensor, int]:
    """Characters as numbers."""
    text = path.read_text()
    letters = sorted(set(text))
    number = {it: at for at, it in enumerate(letters)}
    return torch.tensor([number[it] for it in text]), len(letters)


def draw(text: torch.Tensor, context: int, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Places in a text, and what comes after each letter."""
    at = torch.randint(len(text) - context - 1, (count, 1), generator=generator) + torch.arange(context + 1)
    found = text[at]
    return found[:, :-1], found[:, 1:]


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


def train(options: dict | None, text: torch.Tensor, held: torch.Tensor, vocabulary: int, seed: int, arguments) -> dict:
    """One training; gives the loss on held-out text, bytes and seconds."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed)
    model = Gpt(vocabulary)
    inner = torch.optim.AdamW(model.parameters(), lr=arguments.lr, weight_decay=0.1)
    net = model
    if options is None:
        net, optimizer = DistributedDataParallel(model), inner
    else:
        optimizer = LocalTraining(model, inner, seed=seed, **options)
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    rate = Rate(arguments.lr, warmup=40, start=0.0, decay={"kind": "cosine", "until": arguments.steps, "end": 0.02})
    dist.barrier()
    began = time.perf_counter()
    for step in range(arguments.steps):
        inner.param_groups[0]["lr"] = rate(step)
        optimizer.zero_grad()
        loss = loss_of(net, draw(text, model.context, arguments.batch, generator))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    if options is not None:
        optimizer.finish()
    seconds = time.perf_counter() - began
    model.eval()
    with torch.no_grad():
        check = torch.Generator().manual_seed(7)
        losses = [loss_of(model, draw(held, model.context, 32, check)).item() for _ in range(20)]
    length = sum(it.numel() for it in model.parameters())
    plain = arguments.steps * (2 * (ranks - 1) * 4 * length // ranks)
    return {
        "loss": statistics.mean(losses),
        "bytes": plain if options is None else optimizer.wire_bytes,
        "plain": plain,
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="input.txt of tiny-shakespeare")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=8, help="pieces of text of each rank in a step")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=list(METHODS),
        default=list(METHODS),
        metavar="METHOD",
        help="some of: " + "; ".join(METHODS),
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("shoal")
    first = dist.get_rank() == 0
    text, vocabulary = encoded(arguments.data)
    cut = len(text) * 9 // 10
    rows = []
    if first:
        print(
            f"{dist.get_world_size()} ranks, {arguments.steps} steps of {arguments.batch} pieces each, {arguments.seeds} seeds\n"
        )
        print(
            "| method | loss on held-out text (of each seed) | MB a rank gives | of synchronous | s at 1 Gbit/s | s at 100 Mbit/s |\n|---|---|---|---|---|---|"
        )
    for name in arguments.methods:
        options = METHODS[name]
        found = [train(options, text[:cut], text[cut:], vocabulary, seed, arguments) for seed in range(arguments.seeds)]
        losses, given = [it["loss"] for it in found], found[0]["bytes"]
        compute = statistics.median(it["seconds"] for it in found)
        wire = {name: given * 8 / bits for name, bits in (("1 Gbit/s", 1e9), ("100 Mbit/s", 1e8))}
        rows.append(
            {
                "method": name,
                "losses": losses,
                "bytes": given,
                "share": given / found[0]["plain"],
                "compute_s": compute,
                "wire_s": wire,
            }
        )
        if first:
            each = ", ".join(f"{it:.4f}" for it in losses)
            times = " | ".join(f"{compute:.1f} + {it:.2f}" for it in wire.values())
            print(
                f"| {name} | {statistics.mean(losses):.4f} ({each}) | {given / 1e6:.2f} | 1/{found[0]['plain'] / given:.0f} | {times} |",
                flush=True,
            )
    if first and arguments.json:
        arguments.json.write_text(
            json.dumps({"ranks": dist.get_world_size(), "steps": arguments.steps, "rows": rows}, indent=1) + "\n"
        )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
