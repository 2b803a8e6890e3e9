"""Elastic training of a small GPT: 4 ranks, in mid-epoch 2 of them are killed, later a third comes;
against the same training undisturbed.

    python py/examples/elastic_gpt.py --out elastic.json [--data tiny-shakespeare.txt]

Starts the ranks by itself. The JSON has both loss curves, the number of ranks at each step, how
often each sample was read, and the largest difference of the losses. Without `--data` the text is a
made-up one of a small grammar.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONTEXT, WORKERS, BATCH, SAMPLES = 32, 4, 8, 1920


def text(path: str) -> str:
    """The training text: a file's, or sentences of a small grammar."""
    if path:
        return Path(path).read_text()
    choose = random.Random(0)
    who, does, what = (
        ["the king", "a fool", "my lord", "the ghost"],
        ["sees", "fears", "hath lost", "shall find"],
        ["the crown", "a horse", "thy sword", "no rest"],
    )
    return "".join(f"{choose.choice(who)} {choose.choice(does)} {choose.choice(what)}.\n" for _ in range(4000))


def rank(args: argparse.Namespace) -> None:
    """One rank's training."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from shoal.torch.elastic import Samples, State, run

    class Gpt(nn.Module):
        def __init__(self, vocabulary: int, width: int = 64):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(CONTEXT, width)
            block = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
            self.head = nn.Linear(width, vocabulary)
            self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            inside = self.tokens(tokens) + self.places.weight
            return self.head(self.blocks(inside, mask=self.mask, is_causal=True))

    torch.set_num_threads(1)
    torch.manual_seed(0)
    written = text(args.data)
    letters = sorted(set(written))
    tokens = torch.tensor([letters.index(it) for it in written])
    starts = torch.randperm(len(tokens) - CONTEXT - 1)[:SAMPLES]
    model = Gpt(len(letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    samples = Samples(SAMPLES, workers=WORKERS, batch=BATCH, seed=3)
    state = State(
        model=model,
        optimizer=optimizer,
        samples=samples,
        losses=[],
        ranks=[],
        read=torch.zeros(SAMPLES, dtype=torch.int64),
    )

    def train(state: State) -> None:
        world = state.world
        net = DistributedDataParallel(state.model)
        while samples.epoch == 0:
            # Where two ranks are left, the new one is waited for: a program takes longer to start
            # than these steps.
            while args.holds and len(state.losses) == 30 and world.size == 2:
                time.sleep(0.05)
                state.check()
            total, read = samples.total(), torch.zeros(SAMPLES + 1, dtype=torch.float64)
            optimizer.zero_grad()
            for part in samples.parts(world.rank, world.size):
                at = starts[part.indices, None] + torch.arange(CONTEXT + 1)
                with torch.enable_grad() if part.communicates else net.no_sync():
                    guessed = net(tokens[at[:, :-1]])
                    loss = nn.functional.cross_entropy(
                        guessed.flatten(0, 1), tokens[at[:, 1:]].flatten(), reduction="sum"
                    ) / (total * CONTEXT)
                    # DistributedDataParallel divides by the ranks.
                    (loss * world.size).backward()
                read[part.indices] += 1
                read[-1] += loss.item()
            torch.distributed.all_reduce(read)
            optimizer.step()
            state.losses.append(read[-1].item())
            state.ranks.append(world.size)
            state.read += read[:-1].long()
            samples.finish()
            if world.rank == 0:
                Path(args.progress).write_text(str(len(state.losses)))
            state.commit()

    run(train, state)
    if torch.distributed.get_rank() == 0:
        Path(args.out).write_text(
            json.dumps({"losses": state.losses, "ranks": state.ranks, "read": state.read.tolist()})
        )
    torch.distributed.barrier()


class Ranks:
    """The processes of one training."""

    def __init__(self, args: argparse.Namespace, directory: Path, holds: bool):
        self.args, self.directory, self.holds = args, directory, holds
        directory.mkdir()
        self.processes = [self.start(number, joins=False) for number in range(4)]

    def start(self, number: int, joins: bool) -> subprocess.Popen:
        variables = {
            "RANK": str(number),
            "WORLD_SIZE": "4",
            "SHOAL_COMM_JOINS": str(int(joins)),
            "SHOAL_COMM_DIRECTORY": str(self.directory / "meeting"),
        }
        files = [
            "--out",
            str(self.directory / "out"),
            "--progress",
            str(self.directory / "step"),
            "--data",
            self.args.data,
        ] + ["--holds"] * self.holds
        return subprocess.Popen(
            [sys.executable, __file__, "--rank", *files], env={**os.environ, **variables, "OMP_NUM_THREADS": "1"}
        )

    def until(self, step: int) -> None:
        """Waits until so many steps are done."""
        progress = self.directory / "step"
        while not progress.exists() or int(progress.read_text() or 0) < step:
            if any(it.poll() is not None for it in self.processes):
                sys.exit("a rank ended too early: see above")
            time.sleep(0.02)

    def end(self) -> dict:
        """Waits for all."""
        for it in self.processes:
            if it.wait(600) != 0:
                sys.exit("a rank failed: see above")
        return json.loads((self.directory / "out").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--data", default="")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--holds", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--progress", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        return rank(args)
    with tempfile.TemporaryDirectory() as scratch:
        calm = Ranks(args, Path(scratch) / "calm", holds=False).end()
        changed = Ranks(args, Path(scratch) / "changed", holds=True)
        changed.until(15)
        for _ in range(2):
            lost = changed.processes.pop(1)
            lost.send_signal(signal.SIGKILL)
            lost.wait()
        changed.processes.append(changed.start(0, joins=True))
        rough = changed.end()
    worst = max(abs(one - other) for one, other in zip(calm["losses"], rough["losses"], strict=True))
    counts = sorted(set(rough["read"]))
    answer = {
        "undisturbed": calm["losses"],
        "elastic": rough["losses"],
        "ranks": rough["ranks"],
        "reads per sample": counts,
        "largest difference": worst,
    }
    Path(args.out).write_text(json.dumps(answer))
    phases = [size for place, size in enumerate(rough["ranks"]) if place == 0 or rough["ranks"][place - 1] != size]
    print(
        f"ranks {' -> '.join(map(str, phases))}, {len(rough['losses'])} steps, each sample read {counts} times, losses differ by {worst:.2e} at most"
    )


if __name__ == "__main__":
    main()
