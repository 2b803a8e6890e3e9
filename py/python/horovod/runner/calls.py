"""A function that is called in other processes: `horovod.run` serves it and collects the
results, its workers ask for it.
"""

import os
import pickle
import secrets
import socket
import threading
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener, answer_challenge, deliver_challenge

try:
    from cloudpickle import dumps
except ImportError:  # lambdas and local functions then cannot be sent
    from pickle import dumps

#: The variable with the secret of both sides.
SECRET = "HOROVOD_RUN_SECRET"


class Call:
    """Serves a function with its arguments to the workers, and collects what they return."""

    def __init__(self, func, args: tuple, kwargs: dict, *, local: bool):
        self._payload = dumps((func, args, kwargs))
        self.secret = secrets.token_hex(16)
        # Without the key: its exchange would let one silent stranger hold up all others.
        self._listener = Listener(("127.0.0.1" if local else "", 0))
        host = "127.0.0.1" if local else socket.gethostbyname(socket.gethostname())
        #: The address at which workers ask.
        self.address = f"{host}:{self._listener.address[1]}"
        self._answers: dict[int, tuple[int, object]] = {}
        self._failed: list[tuple[int, str]] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection) -> None:
        try:
            with connection:
                deliver_challenge(connection, self.secret.encode())
                answer_challenge(connection, self.secret.encode())
                connection.send_bytes(self._payload)
                rank, size, ok, data = pickle.loads(connection.recv_bytes())
                if size == 0:
                    # It had no place in the last world.
                    pass
                elif ok:
                    self._answers[rank] = (size, data)
                else:
                    self._failed.append((rank, data))
                connection.send_bytes(b"taken")
        except (EOFError, OSError, AuthenticationError):
            return

    def results(self, code: int) -> list:
        """What the ranks returned, in rank order; `RuntimeError` if one has not."""
        # Of a run that recovered, failures are history.
        if code != 0 or self._failed and not self._answers:
            what = f"Horovod detected that one or more processes exited with non-zero status, thus causing the job to be terminated. Exit code: {code}"
            told = "".join(f"\nRank {rank} raised:\n{text}" for rank, text in self._failed[:1])
            raise RuntimeError(what + told)
        # Of an elastic run, those of its last world.
        size = max((size for size, _ in self._answers.values()), default=0)
        missing = [rank for rank in range(size) if rank not in self._answers]
        if missing or not self._answers:
            raise RuntimeError(f"horovod.run: all processes ended well, but rank {missing or 'none'} returned nothing")
        return [pickle.loads(self._answers[rank][1]) for rank in range(size)]

    def __enter__(self) -> "Call":
        return self

    def __exit__(self, *raised) -> None:
        self._listener.close()


def answer(address: str) -> int:
    """A worker's part: calls the function. The exit code."""
    import traceback

    host, _, port = address.rpartition(":")
    with Client((host, int(port)), authkey=os.environ[SECRET].encode()) as connection:
        is_dismissed = False
        try:
            func, args, kwargs = pickle.loads(connection.recv_bytes())
            data, ok = dumps(func(*args, **kwargs)), True
        except BaseException as error:
            if isinstance(error, SystemExit) and error.code in (None, 0):
                data, ok = dumps(None), True
                is_dismissed = os.environ.get("SHOAL_ELASTIC_DISMISSED") == "1"
            else:
                traceback.print_exc()
                data, ok = traceback.format_exc(), False
        # In an elastic run the rank may be another one by now than it was at the start.
        rank, size = int(os.environ.get("HOROVOD_RANK", 0)), int(os.environ.get("HOROVOD_SIZE", 1))
        connection.send_bytes(pickle.dumps((rank, 0 if is_dismissed else size, ok, data)))
        connection.recv_bytes()
    return 0 if ok else 1
