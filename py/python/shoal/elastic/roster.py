"""The hosts of a job and their numbers of slots: the interface between the scheduler of the hosts
and the training.

The platform, `horovodrun --host-discovery-script` and files written by hand have one format: lines
of `host:slots`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

__all__ = ["FileRoster", "Roster", "parse_hosts"]


class Roster(Protocol):
    """A source of the list of hosts. It is read on rank 0, at commits, twice a second at most."""

    def hosts(self) -> Mapping[str, int] | None:
        """The number of ranks that each host may run; None for no restriction: all ranks stay,
        and newcomers may come from any host.
        """
        ...


def parse_hosts(text: str, slots: int = 1) -> dict[str, int]:
    """Lines of `host:slots`; a host without a number has `slots`. Empty lines and comments after
    a `#` are ignored. `ValueError` names the line.
    """
    hosts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        host, colon, count = line.rpartition(":")
        if not colon:
            host, count = line, str(slots)
        if not host or not count.strip().isdigit():
            raise ValueError(f"line {number}: {line!r} is not a host and its number of ranks, such as algo-1:2")
        hosts[host.strip()] = int(count)
    return hosts


class FileRoster:
    """A file with a line `host:slots` for each host. It is replaced as a whole (written beside,
    then renamed), so that no reader sees half of it.

    While it is missing or malformed, its last valid content applies.
    """

    def __init__(self, path: str | os.PathLike[str], slots: int = 1) -> None:
        self._path, self._slots = Path(path), slots
        self._stamp: tuple[int, int, int] | None = None
        self._hosts: dict[str, int] | None = None

    def hosts(self) -> dict[str, int] | None:
        """The file's hosts; it is read again only when it has changed."""
        try:
            about = self._path.stat()
            stamp = (about.st_mtime_ns, about.st_size, about.st_ino)
            if stamp != self._stamp:
                self._hosts = parse_hosts(self._path.read_text(), self._slots)
                self._stamp = stamp
        except (OSError, ValueError):
            pass
        return self._hosts
