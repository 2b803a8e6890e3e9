"""Pipelines: layers to stages, and who computes what in which order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, NamedTuple

from shoal import _native

__all__ = ["Action", "Module", "Schedule", "Timing", "chain", "schedule", "tree"]

Kind = Literal["gpipe", "1f1b", "interleaved", "zero_bubble", "dynamic"]
Work = Literal["forward", "backward", "input", "weight"]


class Action(NamedTuple):
    """`work`: the forward pass, the whole backward pass, or of the latter the gradient of the
    inputs or of the weights.
    """

    stage: int
    micro: int
    work: Work


@dataclass(frozen=True)
class Timing:
    """What a schedule costs."""

    #: From the first action to the end of the last one.
    total: float
    #: How long each rank computes.
    busy: list[float]
    #: The share of the ranks' time in which they do not.
    idle: float
    #: The most activations that each rank holds at once, of a micro-batch in a stage.
    activations: list[int]


@dataclass(frozen=True)
class Schedule:
    """A list of actions for each rank; stage s is computed by rank s modulo the number of ranks."""

    stages: int
    micros: int
    ranks: list[list[Action]]

    def check(
        self,
        forward: float | Sequence[float] = 1.0,
        input: float | Sequence[float] = 1.0,
        weight: float | Sequence[float] = 1.0,
        transfer: float = 0.0,
    ) -> Timing:
        """Plays it with these durations, of all stages or of each. Raises `ValueError` if it is
        not whole, not in order, or locks up.
        """
        each = {
            name: [it] if isinstance(it, (int, float)) else list(it)
            for name, it in [("forward", forward), ("input", input), ("weight", weight)]
        }
        plain = {
            "stages": self.stages,
            "micros": self.micros,
            "ranks": [[it._asdict() for it in rank] for rank in self.ranks],
        }
        return Timing(
            **json.loads(_native.check_schedule(json.dumps(plain), json.dumps({**each, "transfer": transfer})))
        )


def schedule(kind: Kind, ranks: int, microbatches: int, *, chunks: int = 2, active: int | None = None) -> Schedule:
    """The schedule of a pipeline of `ranks` ranks: `"gpipe"` (smp's simple), `"1f1b"`,
    `"interleaved"` with `chunks` stages a rank, `"zero_bubble"` (ZB-H1), or `"dynamic"` (smp's
    interleaved) with at most `active` micro-batches under way.
    """
    options: dict[str, object] = {"kind": "one_forward_one_backward" if kind == "1f1b" else kind}
    if kind == "interleaved":
        options["chunks"] = chunks
    if kind == "dynamic":
        options["active"] = active
    found = json.loads(_native.schedule(json.dumps(options), ranks, microbatches))
    return Schedule(found["stages"], found["micros"], [[Action(**it) for it in rank] for rank in found["ranks"]])


def chain(
    costs: Sequence[float], stages: int, *, memory: Sequence[int] | None = None, limit: int | None = None
) -> list[int]:
    """The first layer of each stage, such that the dearest stage is as cheap as can be.
    `memory`, `limit`: bytes of each layer, and of a stage at most.
    """
    if memory is not None and len(memory) != len(costs):
        raise ValueError(f"{len(memory)} sizes for {len(costs)} layers")
    return _native.chain(list(costs), list(memory or [0] * len(costs)), stages, limit)


@dataclass(frozen=True)
class Module:
    """A module with its own needs, without those of its children."""

    #: Time of its own work.
    time: float = 0.0
    #: Bytes.
    activations: int = 0
    #: Places of its parameters in the list of sizes; one that several modules name is tied.
    parameters: list[int] = field(default_factory=list)
    #: In the order of their use.
    children: list[Module] = field(default_factory=list)


def tree(root: Module, sizes: Sequence[int], stages: int, *, memory_weight: float = 0.8) -> list[int]:
    """The stage of each module, parents before children, as SageMaker's model parallel library
    finds it. `sizes`: bytes of each parameter.
    """
    return _native.tree(json.dumps(asdict(root)), list(sizes), stages, memory_weight)
