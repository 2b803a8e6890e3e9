"""A worker's side of elastic training: hears of hosts from the launcher, and asks it for its
place in the next world.
"""

import os
import socket
import sys
import threading
from collections.abc import Iterable
from enum import IntFlag
from typing import Any

from horovod.runner.elastic.wire import Channel

#: `ADDRESS:PORT` of the launcher, and what proves that a worker is one of its own.
DRIVER = "SHOAL_ELASTIC_DRIVER"
SECRET = "SHOAL_ELASTIC_SECRET"


class HostUpdateResult(IntFlag):
    """What has changed about the hosts."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class WorkerNotificationManager:
    """Tells listeners (states) what the launcher says of hosts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._listeners: set[Any] = set()

    def init(
        self,
        rendezvous_addr: str | None = None,
        rendezvous_port: int | None = None,
        nic: str | None = None,
        hostname: str | None = None,
        local_rank: int | None = None,
    ) -> None:
        """Connects to the launcher, once; nothing where there is none. What is not given stands
        in the environment; `nic` is not needed, as workers connect.
        """
        with self._lock:
            if self._channel is not None:
                return
            address, port, secret = _driver()
            address, port = rendezvous_addr or address, rendezvous_port if rendezvous_port is not None else port
            if not address:
                return
            hostname, local_rank = _place(hostname, local_rank)
            self._channel = Channel.connect(address, port, secret)
            self._channel.send({"op": "listen", "host": hostname, "local_rank": local_rank})
            self._channel.receive()
            threading.Thread(target=self._listen, args=(self._channel,), name="horovod-hosts", daemon=True).start()

    def register_listener(self, listener: Any) -> None:
        """From now on it hears of changes (`on_hosts_updated`)."""
        self._listeners.add(listener)

    def remove_listener(self, listener: Any) -> None:
        """It hears of none any more."""
        self._listeners.discard(listener)

    def handle_hosts_updated(self, timestamp: float, update_res: HostUpdateResult) -> None:
        """Tells all."""
        for listener in list(self._listeners):
            listener.on_hosts_updated(timestamp, update_res)

    def _listen(self, channel: Channel) -> None:
        while (message := channel.receive()) is not None:
            self.handle_hosts_updated(message["timestamp"], HostUpdateResult(message["result"]))
            channel.send({"heard": True})


def next_world(keeps_state: bool = False, hung: Iterable[int] = ()) -> bool | None:
    """Sets the environment to the world that this process joins next, when all workers are ready
    for it; nothing where there is no elastic launcher. A worker whose host has left ends here,
    well.

    keeps_state: this worker would go on without a synchronisation of the states. hung: ranks of the
    present world that hung. Returns whether all do so; None where there is no launcher to know.
    """
    address, port, secret = _driver()
    if not address:
        return None
    hostname, local_rank = _place(None, None)
    channel = Channel.connect(address, port, secret)
    try:
        world = int(os.environ.get("SHOAL_NAMED_WORLD", 0))
        request = {
            "op": "next",
            "host": hostname,
            "local_rank": local_rank,
            "port": _free_port(),
            "keeps_state": keeps_state,
        }
        channel.send({**request, "hung": list(hung), "world": world})
        answer = channel.receive()
    finally:
        channel.close()
    if answer is None or answer.get("rank", -1) < 0:
        print(
            f"horovod: this worker ({hostname}[{local_rank}]) has no place in the next world; it ends",
            file=sys.stderr,
            flush=True,
        )
        os.environ["SHOAL_ELASTIC_DISMISSED"] = "1"
        raise SystemExit(0)
    os.environ.update(answer["settings"])
    return answer.get("skip_sync") is True


def _driver() -> tuple[str, int, str]:
    address, _, port = os.environ.get(DRIVER, "").rpartition(":")
    return address, int(port or 0), os.environ.get(SECRET, "")


def _place(hostname: str | None, local_rank: int | None) -> tuple[str, int]:
    hostname = hostname or os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname()
    return hostname, int(os.environ.get("HOROVOD_LOCAL_RANK", 0)) if local_rank is None else local_rank


def _free_port() -> int:
    with socket.socket() as it:
        it.bind(("", 0))
        return it.getsockname()[1]
