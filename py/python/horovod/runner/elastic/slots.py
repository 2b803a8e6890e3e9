"""Places for workers on hosts, and the ranks that they get."""

from collections.abc import Sequence

from horovod.runner.hosts import HostInfo, SlotInfo, get_host_assignments


class Slot(SlotInfo):
    """A worker's place in the world."""

    __slots__ = ()

    def to_response_string(self) -> str:
        """As text: rank, size, local rank, local size, cross rank, cross size."""
        return ",".join(
            str(it) for it in (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)
        )


#: The answer to a worker without a place.
INVALID_SLOT_INFO = Slot("", -1, -1, -1, -1, -1, -1)


def assign(hosts: Sequence[HostInfo], least: int, most: int | None = None) -> list[Slot]:
    """Ranks in the order of the hosts, at most `most`, or as many as there are slots.
    `ValueError` if there are fewer than `least`.
    """
    room = sum(it.slots for it in hosts)
    most = max(room if most is None else min(room, most), least)
    return [Slot(*it) for it in get_host_assignments(list(hosts), least, most)]
