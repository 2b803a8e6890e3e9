"""Which layout to train with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from shoal import _native

__all__ = ["Advice", "Cost", "Link", "Machine", "Share", "advise"]


@dataclass(frozen=True)
class Share:
    """How tensor ranks share a layer."""

    #: Which part of its time, parameters and activations; the rest is on every rank.
    part: float
    #: What must be divisible by the degree: heads, vocabulary.
    divides: int
    #: Bytes that are all-reduced for each sample in the forward pass, and again in the backward
    #: pass.
    reduced: int


@dataclass(frozen=True)
class Cost:
    """A layer as measured on one rank; seconds and bytes for one sample."""

    forward: float
    backward: float
    parameters: int
    #: Kept from the forward pass to the backward pass.
    activations: int
    #: Sent to the layer behind it, where that is on another stage.
    output: int
    #: Of a forward pass whatever its size; a backward pass has twice that.
    overhead: float = 0.0
    #: `None`: tensor ranks compute all of it each.
    tensor: Share | None = None


@dataclass(frozen=True)
class Link:
    """Between two ranks: seconds of a message of no bytes, bytes in a second."""

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Machine:
    """Where it is to run."""

    ranks: int
    #: Bytes of each rank.
    memory: int
    #: Between ranks of one host.
    inside: Link
    #: Between hosts; `None`: the same.
    between: Link | None = None
    #: `None`: all.
    ranks_per_host: int | None = None
    #: Bytes that are not for the model.
    reserved: int = 0
    #: How many ranks of a host compute at once as fast as one alone; `None`: all.
    at_once: float | None = None


@dataclass(frozen=True)
class Advice:
    """A layout and its predicted cost."""

    #: Of the mesh: data, shard, context, pipeline, tensor.
    degrees: dict[str, int]
    #: Of ZeRO, 0 to 3.
    zero: int
    #: As `shoal.parallel.schedule` takes it; `None` without a pipeline.
    pipeline: str | None
    #: Of each rank in a step; without a pipeline, passes that are accumulated.
    microbatches: int
    #: The first layer of each stage.
    stages: list[int]
    #: Seconds of a step.
    step: float
    #: Of them, how long the busiest rank computes.
    busy: float
    #: Of them, the exchange of gradients and parameters that nothing hides.
    exchange: float
    #: The share of time in which ranks wait for the pipeline.
    idle: float
    #: Bytes of the fullest rank.
    memory: int
    #: They are no more than there is.
    fits: bool


def advise(
    layers: Sequence[Cost],
    machine: Machine,
    *,
    batch: int,
    precision: tuple[int, int, int] = (4, 4, 8),
    update: float = 0.0,
    handover: float = 0.0,
    overlap: float = 0.0,
) -> list[Advice]:
    """Every valid layout, best first: those that fit by time, then the others by memory.

    `batch`: samples of a step, of all ranks. `precision`: bytes of a parameter, its gradient and
    its state. `update`: seconds of the optimizer for each parameter. `handover`: seconds that a
    rank computes to send a micro-batch to another stage, or to receive it. `overlap`: which part of
    the last backward pass the gradients' way hides behind.
    """
    question = {
        "layers": [asdict(layer) for layer in layers],
        "machine": asdict(machine),
        "batch": batch,
        "precision": dict(zip(("parameter", "gradient", "state"), precision)),
        "update": update,
        "handover": handover,
        "overlap": overlap,
    }
    levels = {"none": 0, "state": 1, "gradients": 2, "parameters": 3}
    names = {"one_forward_one_backward": "1f1b"}
    found = json.loads(_native.advice(json.dumps(question)))
    for it in found:
        kind = it["pipeline"] and it["pipeline"]["kind"]
        it["zero"], it["pipeline"] = levels[it["zero"]], names.get(kind, kind)
    return [Advice(**it) for it in found]
