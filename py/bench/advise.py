"""Does `shoal.parallel.advise` put layouts in the order of their measured times? A small GPT on 4
ranks, by `smdistributed.modelparallel.torch`.

`python advise.py [--steps 6] [--rounds 2] [--width 256] [--layers 8]`. It measures each layer and
the overhead of a pass on one rank, what a micro-batch costs between two stages, how many ranks
compute at once, and the group's latency (between computations, as in training) and bandwidth; asks
for advice; then trains in 12 layouts, each in turn. Prints the table, Kendall's tau between
predicted and measured order, and how far the layout that was predicted to be best is from the best
one.
"""

import argparse
import itertools
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import shoal.torch  # noqa: F401 (registers the backend)
from shoal.parallel import Cost, Link, Machine, Share, advise

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

RANKS, VOCABULARY = 4, 65

#: Degrees of smp, micro-batches, and the same in words of `advise`: (pipeline, tensor, shard,
#: ZeRO).
LAYOUTS = [
    ("data 4", {}, 1, (1, 1, 1, 0)),
    ("data 4, 4 passes", {}, 4, (1, 1, 1, 0)),
    ("ZeRO 1", {"shard_optimizer_state": True}, 1, (1, 1, 4, 1)),
    ("ZeRO 3, 4 passes", {"sharded_data_parallel_degree": 4}, 4, (1, 1, 4, 3)),
    ("pipeline 2 x data 2, 1", {"pipeline_parallel_degree": 2}, 1, (2, 1, 1, 0)),
    ("pipeline 2 x data 2, 8", {"pipeline_parallel_degree": 2}, 8, (2, 1, 1, 0)),
    ("pipeline 4, 1", {"pipeline_parallel_degree": 4}, 1, (4, 1, 1, 0)),
    ("pipeline 4, 4", {"pipeline_parallel_degree": 4}, 4, (4, 1, 1, 0)),
    ("pipeline 4, 16", {"pipeline_parallel_degree": 4}, 16, (4, 1, 1, 0)),
    ("tensor 2 x data 2", {"tensor_parallel_degree": 2}, 1, (1, 2, 1, 0)),
    ("tensor 4, 4 passes", {"tensor_parallel_degree": 4}, 4, (1, 4, 1, 0)),
    ("tensor 2 x pipeline 2, 4", {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2}, 4, (2, 2, 1, 0)),
]

#: Of them, the first with two stages.
PIPELINE = next(at for at, (_, config, *_) in enumerate(LAYOUTS) if config.get("pipeline_parallel_degree") == 2)


def seconds(work, times: int) -> float:
    """The median of so many times, after two that do not count."""
    taken = []
    for at in range(times + 2):
        begun = time.perf_counter()
        work()
        if at >= 2:
            taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def wall(work, times: int) -> float:
    """Of each time, from when all ranks begin to when all have ended."""
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(times):
        work()
    dist.barrier()
    return (time.perf_counter() - begun) / times


def train(args: argparse.Namespace) -> None:
    """A rank of one layout: prints the seconds of a step."""
    import smdistributed.modelparallel.torch as smp
    from small_gpt_smp import gpt

    torch.set_num_threads(1)
    _, config, micros, _ = LAYOUTS[args.layout]
    smp.init({"ddp": True, "microbatches": args.passes or micros, **config})
    torch.manual_seed(0)
    model = smp.DistributedModel(gpt(VOCABULARY, args.width, args.layers, args.heads, args.length))
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-4))

    @smp.step
    def step(model, x, y):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        model.backward(loss)
        return loss

    x = torch.randint(VOCABULARY, (args.batch // smp.dp_size(), args.length))

    def one() -> None:
        optimizer.zero_grad()
        step(model, x, x)
        optimizer.step()

    taken = seconds(one, args.steps)
    if smp.rank() == 0:
        print(json.dumps(taken), flush=True)


def alike(args: argparse.Namespace) -> None:
    """A rank of a group in which each trains a model of its own: prints the seconds of passes
    and of an update, and what an all-reduce of all gradients adds.
    """
    import smdistributed.modelparallel.torch as smp
    from small_gpt_smp import gpt

    torch.set_num_threads(1)
    smp.init({"ddp": True})
    model = gpt(VOCABULARY, args.width, args.layers, args.heads, args.length)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randint(VOCABULARY, (args.batch // RANKS, args.length))
    gradients = torch.zeros(sum(it.numel() for it in model.parameters()))

    def passes() -> None:
        nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad()
        passes()

    def exchange() -> None:
        passes()
        dist.all_reduce(gradients)

    update()
    found = zip(*[[wall(it, 5) for it in (passes, update, exchange)] for _ in range(3)], strict=True)
    only, updated, exchanged = map(statistics.median, found)
    if dist.get_rank() == 0:
        print(
            json.dumps(
                [only, max(updated - only, 0.0) / gradients.numel(), gradients.nbytes / max(exchanged - only, 1e-6)]
            ),
            flush=True,
        )


def link(args: argparse.Namespace) -> None:
    """A rank of the group of 4: prints the seconds that an all-reduce adds between computations."""
    torch.set_num_threads(1)
    dist.init_process_group("shoal")
    layer, x, small = (
        nn.Linear(args.width, 4 * args.width),
        torch.randn(args.batch * args.length, args.width),
        torch.zeros(1),
    )

    def between() -> None:
        layer(x)
        dist.all_reduce(small)

    with torch.no_grad():
        wall(between, 3)
        apart, met = zip(*[(wall(lambda: layer(x), 20), wall(between, 20)) for _ in range(5)], strict=True)
    if dist.get_rank() == 0:
        print(json.dumps(max(statistics.median(met) - statistics.median(apart), 1e-6)), flush=True)


def ranks(args: argparse.Namespace, *more: str, count: int = RANKS) -> object:
    """What rank 0 prints of a group of `count` ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = [f"--{name}={getattr(args, name)}" for name in ("steps", "width", "layers", "heads", "length", "batch")]
    place = {
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "LOCAL_WORLD_SIZE": str(count),
    }
    started = [
        subprocess.Popen(
            [sys.executable, __file__, *own, *more],
            env=os.environ | place | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    said = [it.communicate()[0] for it in started]
    if any(it.returncode for it in started):
        raise SystemExit(f"{more}: a rank failed")
    return json.loads(said[0].strip().splitlines()[-1])


def costs(args: argparse.Namespace) -> None:
    """One rank: each layer by itself, and what a pass of the whole model costs beyond its
    samples.
    """
    import smdistributed.modelparallel.torch as smp
    from small_gpt_smp import gpt

    torch.set_num_threads(1)
    smp.init({"ddp": True})
    model = gpt(VOCABULARY, args.width, args.layers, args.heads, args.length)
    found = []
    for at in (0, 1, len(model) - 1):
        layer = model[at]

        def passes(samples: int, layer=layer, at=at) -> tuple[float, float]:
            if at:
                x = torch.randn(samples, args.length, args.width, requires_grad=True)
            else:
                x = torch.randint(VOCABULARY, (samples, args.length))
            forward = seconds(lambda: layer(x), 10)
            both = seconds(lambda: layer(x).sum().backward(), 10)
            return forward, both - forward

        (one_forward, one_backward), (forward, backward) = passes(1), passes(8)
        found.append(
            [(forward - one_forward) / 7, (backward - one_backward) / 7, sum(it.numel() for it in layer.parameters())]
        )
    print(json.dumps(found), flush=True)


def question(args: argparse.Namespace) -> list:
    """Advice for what was measured."""
    first, block, last = ranks(args, "--measure", "costs", count=1)
    one, many = (ranks(args, "--layout=0", f"--passes={passes}", count=1) for passes in (1, args.batch))
    # A backward pass has twice a forward pass' overhead.
    overhead = max((many - one) / (args.batch - 1) / (args.layers + 2) / 3, 0.0)
    # A ring of n ranks has 2 (n - 1) messages, each of an n-th of the bytes.
    messages = 2 * (RANKS - 1)
    latency = ranks(args, "--measure", "link") / messages
    (alone, *_), (together, update, rate) = (ranks(args, "--measure", "alike", count=count) for count in (1, RANKS))
    at_once, bandwidth = RANKS * alone / together, rate * messages / RANKS
    # Two stages with a core each: m micro-batches take (m + 1) / m halves of the computation, and m
    # + 1 times what each costs beside it.
    half, whole = args.batch // 2, args.batch
    fewer, all_of_them = (
        ranks(args, f"--layout={PIPELINE}", f"--passes={passes}", count=2) for passes in (half, whole)
    )
    each = (all_of_them - fewer + one / 2 * (1 / half - 1 / whole)) / (whole - half)
    # Each stage crosses the boundary twice for a micro-batch.
    handover = max(each - 3 * overhead * (args.layers + 2) / 2, 0.0) / 2
    print(
        f"a block: {1e3 * block[0]:.2f} ms forward, {1e3 * block[1]:.2f} ms backward a sample, {1e3 * overhead:.2f} ms overhead; {1e3 * handover:.2f} ms between stages; "
        f"{1e6 * latency:.0f} us, {bandwidth / 1e9:.2f} GB/s; {at_once:.2f} ranks compute at once; an update {1e3 * update * args.width**2:.2f} ms"
    )
    floats = 4 * args.length * args.width
    share = Share(part=1.0, divides=args.heads, reduced=2 * floats)

    def cost(measured: list, activations: int, output: int, tensor: Share | None) -> Cost:
        forward, backward, parameters = measured
        return Cost(max(forward, 0.0), max(backward, 0.0), parameters, activations, output, overhead, tensor)

    layers = [
        cost(first, floats, floats, None),
        *[cost(block, 16 * floats, floats, share)] * args.layers,
        cost(last, 2 * floats, 4 * args.length * VOCABULARY, None),
    ]
    machine = Machine(RANKS, 8 << 30, Link(latency, bandwidth), at_once=at_once)
    return advise(layers, machine, batch=args.batch, update=update * at_once / RANKS, handover=handover)


def predicted(advice: list, micros: int, want: tuple) -> float:
    pipeline, tensor, shard, zero = want
    for it in advice:
        degrees = it.degrees
        if (
            (degrees["pipeline"], degrees["tensor"], degrees["shard"], it.zero) == want
            and it.microbatches == micros
            and it.pipeline in (None, "1f1b")
        ):
            return it.step
    raise SystemExit(f"no advice for {want}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("steps", 6),
        ("rounds", 2),
        ("width", 256),
        ("layers", 8),
        ("heads", 4),
        ("length", 64),
        ("batch", 16),
        ("layout", -1),
        ("passes", 0),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--measure", choices=("costs", "link", "alike"))
    args = parser.parse_args()
    if args.measure:
        return {"costs": costs, "link": link, "alike": alike}[args.measure](args)
    if args.layout >= 0:
        return train(args)
    advice = question(args)
    expected = [predicted(advice, micros, want) for _, _, micros, want in LAYOUTS]
    least = [math.inf] * len(LAYOUTS)
    for turn, (at, (name, *_)) in itertools.product(range(args.rounds), enumerate(LAYOUTS)):
        least[at] = min(least[at], ranks(args, f"--layout={at}"))
        print(
            f"round {turn + 1} of {args.rounds}: {name}: predicted {1e3 * expected[at]:.0f} ms, at best {1e3 * least[at]:.0f} ms",
            file=sys.stderr,
            flush=True,
        )
    rows = [(*times, name) for *times, (name, *_) in zip(expected, least, LAYOUTS, strict=True)]
    print("| layout | predicted | measured |\n|---|---|---|")
    for said, measured, name in sorted(rows):
        print(f"| {name} | {1e3 * said:.0f} ms | {1e3 * measured:.0f} ms |")
    pairs = list(itertools.combinations(rows, 2))
    agree = sum(1 if (one[0] - other[0]) * (one[1] - other[1]) > 0 else -1 for one, other in pairs)
    chosen, best = min(rows)[1], min(it[1] for it in rows)
    print(
        f"Kendall's tau {agree / len(pairs):.2f}; the one predicted to be best takes {chosen / best:.2f} times the best one's step"
    )


if __name__ == "__main__":
    main()
