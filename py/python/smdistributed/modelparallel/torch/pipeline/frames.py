"""The records of a pipeline's work: calls, frames that wait for their backward pass, bodies of
microbatches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from smdistributed.modelparallel.torch.pipeline.baton import Task
from smdistributed.modelparallel.torch.pipeline.remote import Box

__all__ = ["Answer", "Body", "Frame", "Key", "Learned", "Segment", "Source"]

#: Where an output of the model was computed: stage, caller, its call, and which of the call's
#: outputs.
Source = tuple[int, int, int, int]
#: Who called, in which microbatch, and which of its calls: the same on every rank and, but for the
#: microbatch, in every microbatch.
Key = tuple[int, int, int]


@dataclass(frozen=True)
class Segment:
    """Modules that one stage runs at once: a module, or some of a Sequential's children."""

    stage: int
    path: str
    begin: int = -1
    end: int = -1


@dataclass
class Frame:
    """A segment that this rank ran for a call, until its backward pass."""

    key: Key
    hop: int
    previous: int
    outputs: list[torch.Tensor]
    #: Outputs' gradients that the next stage or the caller has sent; none so far.
    sent: list[torch.Tensor | None] | None = None
    #: Gradients of outputs that are the model's, from this rank's own body, and whether they are
    #: awaited.
    own: dict[int, torch.Tensor | None] = field(default_factory=dict)
    awaits_own: bool = False
    queued: bool = False
    #: Its outputs go back to the caller.
    last: bool = True
    #: Gradients of the inputs, once the backward pass is over.
    box: Box = field(default_factory=Box)


@dataclass
class Learned:
    """Facts that a step function's first call has shown, for later calls; the same in every
    microbatch.
    """

    #: (model call) -> structure of the model's outputs and, for each tensor, (stage, caller,
    #: serial, output) or none where the owner computed it.
    outputs: dict[int, tuple[bytes, list[Source | None]]] = field(default_factory=dict)
    #: (caller, serial) of calls whose outputs get no gradient from their caller.
    silent: set[tuple[int, int]] = field(default_factory=set)
    loud: set[tuple[int, int]] = field(default_factory=set)
    unsure: set[tuple[int, int]] = field(default_factory=set)
    steps: int = 0


@dataclass
class Answer:
    """A call's result: its outputs, and where they were computed."""

    stage: int
    structure: Any
    tensors: list[torch.Tensor]
    needs_grad: list[bool]


class Body:
    """A microbatch's run of the step function on this rank."""

    def __init__(self, micro: int) -> None:
        self.micro = micro
        self.task: Task | None = None
        self.calls = 0
        self.at_backward = False
        self.over = False
        #: Of each call of the model: its outputs as this body has them, and where each was
        #: computed.
        self.outputs: list[tuple[Box, list[Source | None], list[torch.Tensor]]] = []
        self.arrived: dict[int, tuple[Any, list[torch.Tensor], list[Source | None]]] = {}
        self.predicted: set[int] = set()
