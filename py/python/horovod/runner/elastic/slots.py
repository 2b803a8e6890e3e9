"""Places for workers on hosts, and the ranks that they get."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class HostInfo:
    """A host and how many workers it may run."""

    hostname: str
    slots: int


@dataclasses.dataclass(frozen=True)
class SlotInfo:
    """A worker's place in the world."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int

    def to_response_string(self) -> str:
        """As text: rank, size, local rank, local size, cross rank, cross size."""
        return ",".join(str(it) for it in (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size))

    def environment(self) -> dict[str, str]:
        """As a worker's variables."""
        return {
            "HOROVOD_HOSTNAME": self.hostname,
            "HOROVOD_RANK": str(self.rank),
            "HOROVOD_SIZE": str(self.size),
            "HOROVOD_LOCAL_RANK": str(self.local_rank),
            "HOROVOD_LOCAL_SIZE": str(self.local_size),
            "HOROVOD_CROSS_RANK": str(self.cross_rank),
            "HOROVOD_CROSS_SIZE": str(self.cross_size),
        }


#: What a worker without a place is told.
INVALID_SLOT_INFO = SlotInfo("", -1, -1, -1, -1, -1, -1)


def assign(hosts: Sequence[HostInfo], least: int, most: int | None = None) -> list[SlotInfo]:
    """Ranks in the order of the hosts, at most `most`. `ValueError` if the hosts have fewer than `least` slots."""
    places: list[tuple[str, int]] = []
    for host in hosts:
        room = host.slots if most is None else min(host.slots, most - len(places))
        places += [(host.hostname, local) for local in range(room)]
    if len(places) < least:
        raise ValueError(f"{least} workers are wanted, and the hosts {', '.join(f'{it.hostname}:{it.slots}' for it in hosts)} have {len(places)} slots")
    local_size = {host: sum(1 for it, _ in places if it == host) for host, _ in places}
    with_local = [[host for host, local in places if local == number] for number in range(max(local_size.values(), default=0))]
    return [
        SlotInfo(host, rank, local, with_local[local].index(host), len(places), local_size[host], len(with_local[local]))
        for rank, (host, local) in enumerate(places)
    ]
