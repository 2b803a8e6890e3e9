"""The placement of ranks on hosts."""

import ipaddress
import re
import socket
from typing import NamedTuple


class HostInfo(NamedTuple):
    """A host and its number of slots."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(text: str) -> "HostInfo":
        """Parses `host:slots` or `host`."""
        name, _, slots = text.strip().partition(":")
        if not name or (slots and not slots.isdigit()):
            raise ValueError(f"host {text!r}: give it as name:slots, such as worker-0:2")
        return HostInfo(name, int(slots or 1))


class SlotInfo(NamedTuple):
    """A rank's place."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int


def parse_hosts(text: str) -> list[HostInfo]:
    """Parses `host1:2,host2:4`."""
    return [HostInfo.from_string(it) for it in text.split(",") if it.strip()]


def parse_host_file(path: str) -> list[HostInfo]:
    """Parses a file with a line `host slots=2` (or `host:2`) for each host."""
    found = []
    try:
        lines = open(path)
    except OSError as error:
        raise OSError(
            f"--hostfile {path}: {error.strerror}; it is a file with a line such as `worker-0 slots=2` for each host"
        ) from error
    with lines:
        for line in lines:
            line = line.partition("#")[0].strip()
            if not line:
                continue
            name, _, rest = line.partition(" ")
            slots = re.search(r"slots\s*=\s*(\S*)", rest)
            if slots and not slots[1].isdigit():
                raise ValueError(f"{path}: {line!r}: give slots as a number, such as: {name} slots=2")
            found.append(HostInfo(name, int(slots[1])) if slots else HostInfo.from_string(name))
    return found


def get_host_assignments(hosts: list[HostInfo], min_np: int, max_np: int | None = None) -> list[SlotInfo]:
    """Places for at least `min_np` ranks (and at most `max_np`; as many as `min_np` without),
    host after host. `ValueError` if there are too few.
    """
    wanted = min_np if max_np is None else max_np
    counts: list[tuple[str, int]] = []
    left = wanted
    for host in hosts:
        if left > 0 and host.slots > 0:
            counts.append((host.hostname, min(left, host.slots)))
            left -= counts[-1][1]
    size = wanted - left
    if size < min_np:
        slots = ", ".join(f"{it.hostname}:{it.slots}" for it in hosts)
        raise ValueError(
            f"Requested more processes ({min_np}) than there are available slots ({size}): {slots}. Give more slots by -H or --hostfile."
        )
    found, rank = [], 0
    for number, (name, count) in enumerate(counts):
        for local in range(count):
            across = [other for other, (_, of_other) in enumerate(counts) if of_other > local]
            found.append(SlotInfo(name, rank, local, across.index(number), size, count, len(across)))
            rank += 1
    return found


def is_local(name: str) -> bool:
    """Whether a host's name means this machine."""
    if name in ("localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn()):
        return True
    try:
        addresses = {it[4][0] for it in socket.getaddrinfo(name, None)}
    except OSError:
        return False
    if any(ipaddress.ip_address(it.partition("%")[0]).is_loopback for it in addresses):
        return True
    return any(_own(it) for it in addresses)


def _own(address: str) -> bool:
    """Whether an address is one of this machine's: only those can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as it:
        try:
            it.bind((address, 0))
        except OSError:
            return False
    return True
