"""The ranks of an elastic training, and what they tell each other."""

from __future__ import annotations

import ctypes
import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from shoal.comm import Group, Operation

__all__ = ["World"]


class World:
    """A process group that is made anew when ranks come or go, while the object stays."""

    def __init__(self, group: Group, pickler: type[pickle.Pickler] = pickle.Pickler) -> None:
        self._group = group
        self._pickler = pickler
        #: Called with the new group after each change, before it is used.
        self.renewed: list[Callable[[Group], object]] = []

    @classmethod
    def join(cls, settings: Mapping[str, str] | None = None, **options: Any) -> World:
        """The ranks that the environment names or, with SHOAL_COMM_JOINS=1, the group that takes
        this process in; `settings` win over the environment.
        """
        return cls(Group.join(dict(settings or {})), **options)

    @property
    def group(self) -> Group:
        """The group as it is now."""
        return self._group

    @property
    def rank(self) -> int:
        """This rank's number; the oldest is 0."""
        return self._group.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._group.size

    @property
    def epoch(self) -> int:
        """How often the ranks have changed, at least."""
        return self._group.epoch

    def all_gather(self, value: int) -> list[int]:
        """All ranks' values."""
        mine, all_ = (ctypes.c_int64 * 1)(value), (ctypes.c_int64 * self.size)()
        self._group.run(Operation("all_gather", "i64", ctypes.addressof(mine), ctypes.addressof(all_), 1))
        return list(all_)

    def broadcast(self, values: list[int], root: int = 0) -> list[int]:
        """The root's values; all ranks give equally many."""
        words = (ctypes.c_int64 * len(values))(*values)
        self._group.run(
            Operation("broadcast", "i64", ctypes.addressof(words), ctypes.addressof(words), len(values), peer=root)
        )
        return list(words)

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """The root's object; those of other ranks are ignored. Large buffers in it are sent
        without a copy.
        """
        buffers: list[Any] = []
        if self.rank == root:
            head = io.BytesIO()
            kept: list[pickle.PickleBuffer] = []
            pickler = self._pickler(head, protocol=5, buffer_callback=kept.append)
            pickler.dump(value)
            text = head.getvalue()
            buffers = [memoryview(bytearray(it.raw())) if it.raw().readonly else it.raw() for it in kept]
            sizes = [len(text), *(it.nbytes for it in buffers)]
        else:
            text, sizes = b"", []
        (count,) = self.broadcast([len(sizes)], root)
        sizes = self.broadcast(sizes if self.rank == root else [0] * count, root)
        head_bytes = bytearray(text) if self.rank == root else bytearray(sizes[0])
        if self.rank != root:
            buffers = [memoryview(bytearray(size)) for size in sizes[1:]]
        for memory in (head_bytes, *buffers):
            self._broadcast_memory(memory, root)
        return value if self.rank == root else pickle.loads(bytes(head_bytes), buffers=buffers)

    def _broadcast_memory(self, memory: Any, root: int) -> None:
        length = memoryview(memory).nbytes
        if length:
            address = ctypes.addressof((ctypes.c_char * length).from_buffer(memory))
            self._group.run(Operation("broadcast", "u8", address, address, length, peer=root))

    def waiting(self) -> int:
        """Number of processes that wait to be taken in; on rank 0."""
        return self._group.newcomers()

    def grow(self, size: int, patience: float) -> None:
        """Makes the group of the surviving ranks, and of newcomers until there are `size` ranks
        or `patience` seconds are over.
        """
        old, self._group = self._group, self._group.grow(size, patience)
        for then in self.renewed:
            then(self._group)
        old.close()

    def leave(self) -> None:
        """Leaves the group."""
        self._group.close()
