"""The launcher's server: workers ask it for their place in the next world, and it tells them of
hosts.
"""

import socketserver
import threading
from typing import Any

from horovod.runner.elastic.wire import Channel
from horovod.runner.launch import place_variables

__all__ = ["RendezvousServer", "WorkerClient", "create_rendezvous_handler"]


#: Seconds that a worker has to hear; one that is stopped does not.
ANSWER_S = 5.0


class WorkerClient:
    """A worker that listens."""

    def __init__(self, channel: Channel):
        self._channel = channel
        self._telling = threading.Lock()

    def notify_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Tells it; returns when it has heard. OSError where it is gone."""
        with self._telling:
            self._channel.send({"timestamp": timestamp, "result": int(update_res)})
            if self._channel.receive() is None:
                raise ConnectionError("the worker is gone")


def create_rendezvous_handler(driver: Any):
    """What answers workers for this driver."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            try:
                self.serve()
            except OSError:
                # The worker is gone; the thread that runs its process knows.
                pass

        def serve(self) -> None:
            channel = Channel.accept(self.request, self.server.secret)
            message = None if channel is None else channel.receive()
            if message is None:
                return
            host, local_rank = str(message.get("host")), int(message.get("local_rank", -1))
            if message.get("op") == "listen":
                channel.patience(ANSWER_S)
                channel.send({"registered": True})
                driver.register_worker_client(host, local_rank, WorkerClient(channel))
                # Open until the worker or the launcher ends; answers are read by the client.
                self.server.over.wait()
            elif message.get("op") == "next":
                hung = [int(it) for it in message.get("hung", [])]
                driver.record_ready(
                    host,
                    local_rank,
                    int(message.get("port", 0)),
                    message.get("keeps_state") is True,
                    hung,
                    int(message.get("world", 0)),
                )
                slot = driver.get_slot_info(host, local_rank)
                settings = {**place_variables(slot), **driver.meeting()} if slot.rank >= 0 else {}
                channel.send({"rank": slot.rank, "settings": settings, "skip_sync": driver.skips_sync()})

    return Handler


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024
    secret = ""
    over: threading.Event


class RendezvousServer:
    """Serves the port."""

    def __init__(self, verbose: int = 0):
        #: The secret that workers must know.
        self.secret = ""
        self._server: _Server | None = None
        self._over = threading.Event()

    def start(self, handler, address: str = "", secret: str = "") -> int:
        """Listens at that address of this machine (all, if not given); the port."""
        self.secret = secret
        server = _Server((address, 0), handler, bind_and_activate=False)
        server.secret, server.over = secret, self._over
        server.server_bind()
        server.server_activate()
        self._server = server
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="horovod-rendezvous", daemon=True
        ).start()
        return server.server_address[1]

    def init(self, assignments: Any) -> None:
        """A new world: nothing is kept here of the past one."""

    def stop(self) -> None:
        """Stops listening."""
        self._over.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
