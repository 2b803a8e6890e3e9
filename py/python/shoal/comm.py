"""Process groups: ranks that reduce, gather and exchange memory together, and survive each other.

`shoal.torch` makes a backend of `torch.distributed` of them. This module has the group itself, for
libraries that have addresses to give, and the exceptions, each of which says which ranks (`ranks`)
and which operation (`operation`, `number`) it is about.
"""

from typing import NamedTuple

from shoal._native import (
    CommError,
    Compressor,
    ConfigError,
    DeadlineExceeded,
    Disagreement,
    Group,
    Memory,
    PeerDied,
    PeerGaveUp,
    PeerHung,
    RendezvousError,
    Revoked,
    Work,
)

__all__ = [
    "CommError",
    "Compressor",
    "ConfigError",
    "DeadlineExceeded",
    "Disagreement",
    "Group",
    "Memory",
    "Operation",
    "PeerDied",
    "PeerGaveUp",
    "PeerHung",
    "RendezvousError",
    "Revoked",
    "Work",
]


class Operation(NamedTuple):
    """One rank's part in one operation: what is done, and on which memory. Lengths are counted in
    elements.

    `kind`: all_reduce, reduce, reduce_scatter, all_gather, broadcast, gather, scatter, all_to_all,
    send, recv, recv_any, barrier. `len`: of the vector; of own piece for reduce_scatter and
    all_gather; of one piece for gather, scatter and all_to_all.
    """

    kind: str
    #: f32, f64, f16, bf16, i8, i16, i32, i64, u8 or bool
    dtype: str = "u8"
    #: Address of what this rank gives.
    send: int = 0
    #: Address of what this rank gets; `send` again for in place.
    recv: int = 0
    #: Elements.
    len: int = 0
    #: sum, avg, min, max or product, where it reduces.
    op: str | None = None
    #: The root, or the other rank of a message.
    peer: int = 0
    #: Of a message: a receive gets the oldest with its tag.
    tag: int = 0
    #: Elements of each rank's piece where they are unequal; all_to_all: for each rank, then from
    #: each rank.
    counts: list[int] | None = None
    #: Seconds; the group's own if none.
    deadline: float | None = None
