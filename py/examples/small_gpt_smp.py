"""A small GPT on tiny-shakespeare by `smdistributed.modelparallel.torch`, in every layout: the same
losses, and less memory on each rank.

`torchrun --nproc-per-node 2 small_gpt_smp.py --data DIRECTORY --layout pp2`: prints losses, and the
bytes of parameters, gradients and optimizer state of each rank beside what the formula says.
Layouts: one (1 rank), pp2, tp2, zero1, zero2 and zero3 (2 ranks), pp2dp2 (4 ranks). Each optimizer
step takes `--batch` samples in all, so the losses are those of `--layout one`, up to rounding.

`--save DIRECTORY` writes a full checkpoint and the scores of some samples at the end;
`--load DIRECTORY` begins with those of another layout, perhaps with other ranks, and prints how far
its scores are from those: `--layout tp2dp2 --save`, then `--layout pp4`, `one` or `zero3` (on 3
ranks) with `--steps 0 --load`.
"""

import argparse
import json
import os
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

import smdistributed.modelparallel.torch as smp
from shoal.parallel import zero_bytes

LAYOUTS = {
    "one": {},
    "pp2": {"pipeline_parallel_degree": 2, "microbatches": 4},
    "tp2": {"tensor_parallel_degree": 2},
    "pp4": {"pipeline_parallel_degree": 4, "microbatches": 4},
    "tp2dp2": {"tensor_parallel_degree": 2},
    "pp2dp2": {"pipeline_parallel_degree": 2, "microbatches": 2},
    "zero1": {"shard_optimizer_state": True},
    # The degree is the number of ranks.
    "zero2": {"sharded_data_parallel_degree": 0, "sdp_gradient_clipping": 0.0, "sdp_param_persistence_threshold": 1000},
    "zero3": {"sharded_data_parallel_degree": 0, "sdp_gradient_clipping": 0.0, "sdp_param_persistence_threshold": 1000},
}
LEVELS = {"zero1": 1, "zero2": 2, "zero3": 3}


class Ends(nn.Module):
    """The first and the last part of the model as one stage each: vectors of characters and
    places, or their scores.
    """

    def __init__(self, vocabulary: int, width: int, length: int | None):
        super().__init__()
        self.places = None if length is None else nn.Embedding(length, width)
        self.words = nn.Embedding(vocabulary, width) if length is not None else None
        self.norm = nn.LayerNorm(width) if length is None else None
        self.scores = nn.Linear(width, vocabulary, bias=False) if length is None else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.words is not None:
            return self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        return self.scores(self.norm(x))


class Layer(nn.Module):
    """A layer of `smp.nn`, which takes and gives tuples, as one that takes and gives a tensor."""

    def __init__(self, width: int, heads: int, length: int, number: int):
        super().__init__()
        self.layer = smp.nn.DistributedTransformerLayer(
            heads,
            width // heads,
            width,
            4 * width,
            0.0,
            0.0,
            causal_mask_size=length,
            pre_layernorm=True,
            post_layernorm=False,
            use_normal_initialization=True,
            layer_idx=number,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer((x, None))[0]


def gpt(vocabulary: int, width: int, layers: int, heads: int, length: int) -> nn.Sequential:
    """Characters [N, S] to scores [N, S, vocabulary]."""
    return nn.Sequential(
        Ends(vocabulary, width, length),
        *(Layer(width, heads, length, at) for at in range(layers)),
        Ends(vocabulary, width, None),
    )


#: Bytes of whole parameters that FSDP2 keeps beside its shards from the forward to the backward
#: pass.
gathered = 0


@smp.step
def train_step(model, x, y):
    global gathered
    scores = model(x)
    gathered = bytes_of(it for it in model.local_parameters() if not isinstance(it, DTensor))
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), y.flatten())
    model.backward(loss)
    return loss


@smp.step
def predict(model, x):
    with torch.no_grad():
        return model(x)


def compare(model, optimizer, x: torch.Tensor, args: argparse.Namespace) -> None:
    """Scores of samples after the training: stored with the checkpoint, or beside the stored
    ones.
    """
    scores = predict(model, x).concat()
    if args.load:
        stored = torch.load(args.load / "scores.pt")
        if smp.rank() == 0:
            print(
                f"{args.layout} on {smp.size()} ranks: scores differ by {(scores - stored).abs().max().item():.1e} at most, of {stored.abs().max().item():.1f}",
                flush=True,
            )
    if args.save:
        smp.save_checkpoint(str(args.save), "gpt", partial=False, model=model, optimizer=optimizer)
        if smp.rank() == 0:
            torch.save(scores, args.save / "scores.pt")


def bytes_of(tensors) -> int:
    """What this rank keeps of them."""
    local = [it.to_local() if isinstance(it, DTensor) else it for it in tensors if isinstance(it, torch.Tensor)]
    return sum(it.numel() * it.itemsize for it in local)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="directory with input.txt")
    parser.add_argument("--layout", choices=LAYOUTS, default="one")
    for name, default in (("steps", 200), ("batch", 8), ("length", 64), ("width", 128), ("layers", 4), ("heads", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--load", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    config = {"ddp": True, **LAYOUTS[args.layout]}
    if "sharded_data_parallel_degree" in config:
        config["sharded_data_parallel_degree"] = int(os.environ.get("WORLD_SIZE", 1))
    smp.init(config)

    text = (args.data / "input.txt").read_text()
    letters = {it: at for at, it in enumerate(sorted(set(text)))}
    stream = torch.tensor([letters[it] for it in text])

    torch.manual_seed(0)
    model = smp.DistributedModel(gpt(len(letters), args.width, args.layers, args.heads, args.length))
    if args.layout == "zero2":
        # Parameters stay whole from the forward to the backward pass.
        for it in model.modules():
            if isinstance(it, FSDPModule):
                it.set_reshard_after_forward(False)
    total = sum(it.numel() for it in gpt_shapes(args, len(letters)))
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-3))
    if args.load:
        smp.resume_from_checkpoint(str(args.load), partial=False)
    draw = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(args.steps):
        at = torch.randint(len(stream) - args.length - 1, (args.batch,), generator=draw)
        at = at.chunk(smp.dp_size())[smp.dp_rank()]
        x = torch.stack([stream[it : it + args.length] for it in at])
        y = torch.stack([stream[it + 1 : it + args.length + 1] for it in at])
        optimizer.zero_grad()
        loss = train_step(model, x, y).reduce_mean()
        optimizer.step()
        losses.append(loss.item())
    if args.save or args.load:
        compare(
            model,
            optimizer,
            torch.stack([stream[it : it + args.length] for it in range(0, 12 * args.length, args.length)]),
            args,
        )
    everybody = smp.allgather(losses, smp.DP_GROUP)
    parameters = list(model.local_parameters())
    states = [
        value
        for it in optimizer.state.values()
        for value in it.values()
        if isinstance(value, torch.Tensor) and value.dim()
    ]
    whole = gathered if isinstance(parameters[0], DTensor) else 0
    own = {
        "parameters": bytes_of(parameters) + whole,
        "gradients": bytes_of(it.grad for it in parameters),
        "state": bytes_of(states),
    }
    kept = smp.allgather(own)
    if smp.rank() == 0:
        level = LEVELS.get(args.layout, 0)
        formula = zero_bytes(level, total, smp.rdp_size()) if level else 16 * total // (smp.pp_size() * smp.tp_size())
        mean = [sum(it) / len(it) for it in zip(*everybody, strict=True)]
        print(
            json.dumps(
                {
                    "layout": args.layout,
                    "losses": mean,
                    "parameters": total,
                    "formula": formula,
                    "bytes": [sum(it.values()) for it in kept],
                    "each": kept,
                }
            )
        )


def gpt_shapes(args, vocabulary: int):
    """Parameters of the whole model, without storage."""
    w, f = args.width, 4 * args.width
    layer = [(w, w)] * 4 + [(w,)] * 4 + [(f, w), (f,), (w, f), (w,)] + [(w,)] * 4
    shapes = [(args.length, w), (vocabulary, w), *layer * args.layers, (w,), (w,), (vocabulary, w)]
    return [torch.empty(it, device="meta") for it in shapes]


if __name__ == "__main__":
    main()
