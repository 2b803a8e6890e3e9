"""Starts ranks that have torch, and tells them what to check."""

import json
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import shoal

HERE = Path(__file__).parent
PATIENCE_S = 240


def _python() -> tuple[str | None, tuple[int, ...]]:
    """An interpreter that has torch ($SHOAL_TORCH_PYTHON's, or this one) and torch's version."""
    for python in [os.environ.get("SHOAL_TORCH_PYTHON"), sys.executable]:
        it = python and subprocess.run(
            [python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True
        )
        if it and it.returncode == 0:
            return python, tuple(int(part) for part in it.stdout.split(".")[:2])
    return None, ()


PYTHON, VERSION = _python()
WITHOUT = "needs torch: name an interpreter that has it, as in SHOAL_TORCH_PYTHON=/path/to/python cargo xtask package"


def needs_torch():
    """Skips a module's tests where there is no torch."""
    return pytest.mark.skipif(PYTHON is None, reason=WITHOUT)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def environment() -> dict[str, str]:
    """This process's, with the package under test."""
    packages = os.pathsep.join([str(Path(shoal.__file__).parents[1]), str(HERE)])
    return {**os.environ, "PYTHONPATH": packages, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}


def start(rank: int, size: int, port: int, *program: str, python: str | None = None, **more: str) -> subprocess.Popen:
    """A rank's process: this program in an interpreter that has torch, with the variables that
    torchrun sets.
    """
    place = {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
    return spawn(python or PYTHON, *program, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), **place, **more)


def spawn(*command: str, **more: str) -> subprocess.Popen:
    """A process with the package under test and these variables. Its `errors` is the file of its
    standard error: a pipe that is not read would stop it.
    """
    errors = tempfile.TemporaryFile("w+")
    process = subprocess.Popen(
        command, env={**environment(), **more}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
    )
    process.errors = errors
    return process


def said(process: subprocess.Popen) -> str:
    """What a process that is over, or of no more use, wrote to standard error."""
    process.errors.seek(0)
    return process.errors.read()


class Ranks:
    """Ranks that wait for checks."""

    #: What each runs.
    PROGRAM = "torch_rank.py"

    def __init__(self, size: int, **more: str):
        port = free_port()
        self.processes = [self.start(rank, size, port, **more) for rank in range(size)]
        self.lines = [queue.Queue() for _ in self.processes]
        for process, lines in zip(self.processes, self.lines, strict=True):
            threading.Thread(
                target=lambda it=process, to=lines: [*map(to.put, it.stdout), to.put("")], daemon=True
            ).start()
        for rank in range(size):
            self.answer(rank)

    def start(self, rank: int, size: int, port: int, **more: str) -> subprocess.Popen:
        """A rank's process."""
        return start(rank, size, port, str(HERE / self.PROGRAM), **more)

    def answer(self, rank: int) -> dict:
        """A rank's next answer."""
        try:
            line = self.lines[rank].get(timeout=PATIENCE_S)
        except queue.Empty:
            line = ""
        if not line:
            self.end()
            texts = [f"rank {other}: {said(process)}" for other, process in enumerate(self.processes)]
            pytest.fail(f"rank {rank} says nothing more\n" + "\n".join(texts))
        return json.loads(line)

    def check(self, module: str, name: str) -> None:
        """All ranks do this check."""
        for process in self.processes:
            process.stdin.write(json.dumps([module, name]) + "\n")
            process.stdin.flush()
        answers = [self.answer(rank) for rank in range(len(self.processes))]
        wrong = [f"rank {rank}: {it['why']}" for rank, it in enumerate(answers) if not it["ok"]]
        if wrong:
            # A rank that failed has left the others waiting.
            self.end()
        assert not wrong, "\n".join(wrong)

    def living(self) -> bool:
        """Whether they can be told of more."""
        return all(process.poll() is None for process in self.processes)

    def end(self) -> None:
        """Ends them."""
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def kept(ranks: Callable[[int], Ranks] = Ranks) -> Iterator[Callable[..., Ranks]]:
    """Ranks by their number, two unless told: started when first asked for, anew after a
    failure, and ended with the block.
    """
    started: dict[int, Ranks] = {}

    def of(size: int = 2) -> Ranks:
        if size in started and not started[size].living():
            started.pop(size).end()
        if size not in started:
            started[size] = ranks(size)
        return started[size]

    try:
        yield of
    finally:
        for it in started.values():
            it.end()
