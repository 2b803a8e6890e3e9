"""Messages between launcher and workers: lines of JSON over TCP, after a proof that both know
the secret.
"""

import hashlib
import hmac
import json
import secrets
import socket
import threading
from typing import Any

#: Bytes of a message.
MOST = 1 << 20
#: Seconds for a peer to prove that it knows the secret.
PROOF_S = 10.0


def _proof(secret: str, side: str, challenge: str) -> str:
    return hmac.new(secret.encode(), f"{side} {challenge}".encode(), hashlib.sha256).hexdigest()


class Channel:
    """One connection."""

    def __init__(self, link: socket.socket):
        self._link = link
        self._lines = link.makefile("r", encoding="utf-8")
        self._sending = threading.Lock()

    @classmethod
    def connect(cls, address: str, port: int, secret: str) -> "Channel":
        """Connects to the launcher. `ConnectionError` if it does not listen or has another
        secret.
        """
        channel = cls(socket.create_connection((address, port), timeout=PROOF_S))
        mine = secrets.token_hex(16)
        theirs = (channel.receive() or {}).get("challenge", "")
        channel.send({"proof": _proof(secret, "worker", theirs), "challenge": mine})
        answer = channel.receive() or {}
        if not hmac.compare_digest(answer.get("proof", ""), _proof(secret, "launcher", mine)):
            channel.close()
            raise ConnectionError(
                f"{address}:{port} is not this job's launcher, or the secret is another: start workers by the launcher only"
            )
        channel._link.settimeout(None)
        return channel

    @classmethod
    def accept(cls, link: socket.socket, secret: str) -> "Channel | None":
        """Accepts a worker; None for a peer that does not know the secret."""
        link.settimeout(PROOF_S)
        channel = cls(link)
        mine = secrets.token_hex(16)
        channel.send({"challenge": mine})
        answer = channel.receive() or {}
        if not hmac.compare_digest(str(answer.get("proof", "")), _proof(secret, "worker", mine)):
            channel.close()
            return None
        channel.send({"proof": _proof(secret, "launcher", str(answer.get("challenge", "")))})
        link.settimeout(None)
        return channel

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message. OSError if the peer is gone."""
        with self._sending:
            self._link.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """The peer's next message; None if the peer is gone or sends anything else."""
        try:
            line = self._lines.readline(MOST)
            message = json.loads(line) if line.endswith("\n") else None
        except (OSError, ValueError):
            return None
        return message if isinstance(message, dict) else None

    def patience(self, seconds: float) -> None:
        """Sets the time limit of each message."""
        self._link.settimeout(seconds)

    def close(self) -> None:
        """Closes the connection."""
        try:
            self._link.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._lines.close()
        self._link.close()
