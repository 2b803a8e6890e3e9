"""Plans of distributed training as data: who computes what in which order, what lies where, and
what is sent when.

    mesh = Mesh(8, pipeline=2, tensor=2)                 # ranks and groups
    plan = Accumulation(workers=8, ranks=2)              # two ranks train as eight workers
    rate = Rate(0.1, times=8, warmup=500)                # learning rates, in steps of the optimizer
    cursor = Cursor(50_000, seed=7)                      # which samples, exact when the world changes
    best = advise(layers, machine, batch=64)[0]          # which layout to train with

Nothing here computes on tensors, reads a clock, a file or a network: the same arguments give the
same plan on every rank, so ranks need not talk to agree. A value that cannot be raises `Invalid`,
which names the field and the nearest values that can. `docs/parallel.md` shows what each is for.
"""

from shoal._native import Invalid
from shoal.parallel.accumulation import Accumulation, Pass
from shoal.parallel.advice import Advice, Cost, Link, Machine, Share, advise
from shoal.parallel.buckets import Bucket, Launches, buckets
from shoal.parallel.large_batch import Rate, lamb_ratio, lamb_step, lars_ratio, lars_step
from shoal.parallel.local import Outer, Streaming, meeting
from shoal.parallel.loss_scale import LossScale
from shoal.parallel.mesh import Mesh
from shoal.parallel.pipeline import Action, Module, Schedule, Timing, chain, schedule, tree
from shoal.parallel.samples import Cursor
from shoal.parallel.shards import Layout, Piece, Tensor, Transfer, reshard, tensor_part, zero_bytes
from shoal.parallel.simulated import simulated_rate_factor, simulated_world

__all__ = [
    "Accumulation",
    "Action",
    "Advice",
    "Bucket",
    "Cost",
    "Cursor",
    "Invalid",
    "Launches",
    "Layout",
    "Link",
    "LossScale",
    "Machine",
    "Mesh",
    "Module",
    "Outer",
    "Pass",
    "Piece",
    "Rate",
    "Schedule",
    "Share",
    "Streaming",
    "Tensor",
    "Timing",
    "Transfer",
    "advise",
    "buckets",
    "chain",
    "lamb_ratio",
    "lamb_step",
    "lars_ratio",
    "lars_step",
    "meeting",
    "reshard",
    "schedule",
    "simulated_rate_factor",
    "simulated_world",
    "tensor_part",
    "tree",
    "zero_bytes",
]
