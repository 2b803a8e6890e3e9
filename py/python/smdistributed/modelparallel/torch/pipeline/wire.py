"""Messages between the ranks of a pipeline: a small header, and tensors as they lie in memory."""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from shoal.comm import Operation
from shoal.torch.backend import ShoalBackend

__all__ = ["Message", "Packed", "Wire", "is_empty", "pack", "unpack"]

#: Bytes of a message's first part, which has a fixed size because a receive must know it.
FIRST = 4096
HEAD, REST, DATA = 21, 22, 23


class Slot(NamedTuple):
    """Stands for a tensor."""

    place: int


class Packed(NamedTuple):
    """Nested values without their tensors, and the tensors."""

    values: Any
    tensors: list[torch.Tensor]


def pack(values: Any) -> Packed:
    """Takes the tensors out of nested values."""
    tensors: list[torch.Tensor] = []

    def take(it: Any) -> Any:
        if not isinstance(it, torch.Tensor):
            return it
        tensors.append(it)
        return Slot(len(tensors) - 1)

    return Packed(pytree.tree_map(take, values), tensors)


def unpack(values: Any, tensors: list[torch.Tensor]) -> Any:
    """Puts tensors back."""
    is_slot = lambda it: isinstance(it, Slot)  # noqa: E731
    return pytree.tree_map(lambda it: tensors[it.place] if is_slot(it) else it, values, is_leaf=is_slot)


def is_empty(values: Any) -> bool:
    """Whether nothing is left of packed values but their containers."""
    return all(
        it is None or isinstance(it, Slot) for it in pytree.tree_leaves(values, is_leaf=lambda it: isinstance(it, Slot))
    )


@dataclass
class Message:
    """`kind` and its values; `tensors` may contain None."""

    kind: str
    values: dict[str, Any] = field(default_factory=dict)
    tensors: list[torch.Tensor | None] = field(default_factory=list)
    source: int = -1


class Wire:
    """The ranks of one pipeline, by their stages. All sizes are in bytes."""

    def __init__(self, backend: ShoalBackend, device: torch.device) -> None:
        self.native = backend.native
        self.deadline = backend.timeout.total_seconds()
        self.stage, self.stages = self.native.rank, self.native.size
        self.device = device
        self._sent: list[Any] = []
        self._slot: torch.Tensor | None = None
        self._next: Any = None
        #: Messages of this rank to itself.
        self._own: list[Message] = []

    def _start(self, kind: str, tensor: torch.Tensor, peer: int, tag: int) -> Any:
        address, length = tensor.data_ptr(), tensor.numel() * tensor.itemsize
        send, receive = (address, 0) if kind == "send" else (0, address)
        return self.native.start(
            Operation(kind, "u8", send, receive, length, peer=peer, tag=tag, deadline=self.deadline), tensor
        )

    def send(self, to: int, message: Message) -> None:
        """Sends a message to a stage; its tensors must not change any more."""
        if to == self.stage:
            message.source = to
            message.tensors = [None if it is None else it.detach().clone() for it in message.tensors]
            self._own.append(message)
            return
        tensors = [None if it is None else it.detach().to("cpu").contiguous() for it in message.tensors]
        shapes = [None if it is None else (tuple(it.shape), it.dtype) for it in tensors]
        text = pickle.dumps((message.kind, message.values, shapes))
        first = torch.zeros(FIRST, dtype=torch.uint8)
        body = torch.frombuffer(bytearray(len(text).to_bytes(8, "little") + text), dtype=torch.uint8)
        first[: min(len(body), FIRST)] = body[:FIRST]
        works = [self._start("send", first, to, HEAD)]
        if len(body) > FIRST:
            works.append(self._start("send", body[FIRST:].clone(), to, REST))
        works += [self._start("send", it, to, DATA) for it in tensors if it is not None and it.numel()]
        self._sent = [it for it in self._sent if not it.done()] + works

    def open(self) -> None:
        """Begins to take messages."""
        self._slot = torch.empty(FIRST, dtype=torch.uint8)
        self._next = self._start("recv_any", self._slot, 0, HEAD)

    def receive(self, wait: bool) -> Message | None:
        """The next message; without `wait` only one that is there."""
        if self._own:
            return self._own.pop(0)
        if not wait and not self._next.done():
            return None
        self._next.wait()
        source = self._next.source()
        length = int.from_bytes(self._slot[:8].numpy().tobytes(), "little")
        text = self._slot[8 : 8 + length].numpy().tobytes()
        if 8 + length > FIRST:
            rest = torch.empty(8 + length - FIRST, dtype=torch.uint8)
            self._start("recv", rest, source, REST).wait()
            text += rest.numpy().tobytes()
        kind, values, shapes = pickle.loads(text)
        tensors: list[torch.Tensor | None] = []
        works = []
        for it in shapes:
            tensor = None if it is None else torch.empty(it[0], dtype=it[1])
            tensors.append(tensor)
            if tensor is not None and tensor.numel():
                works.append(self._start("recv", tensor, source, DATA))
        for work in works:
            work.wait()
        if self.device.type != "cpu":
            tensors = [None if it is None else it.to(self.device) for it in tensors]
        self._next = None
        return Message(kind, values, tensors, source)

    def listen(self) -> None:
        """Posts a receive for another message."""
        if self._next is None:
            self._next = self._start("recv_any", self._slot, 0, HEAD)

    def flush(self, seconds: float) -> None:
        """Waits, up to a limit, until all sent messages have arrived: the process may end right
        after.
        """
        end = time.monotonic() + seconds
        while any(not it.done() for it in self._sent) and time.monotonic() < end:
            time.sleep(0.001)

    def close(self) -> None:
        """Waits until all sent messages have arrived."""
        for work in self._sent:
            work.wait()
        self._sent, self._slot, self._next = [], None, None
