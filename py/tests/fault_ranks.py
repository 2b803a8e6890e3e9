"""Starts the ranks of test_torch_faults.py: each case's are forked from this process, which has
loaded its framework once.
"""

import importlib
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress

RANKS, FAULTY = 3, 1
TIMEOUT_S = 60


class Case:
    """A fault of rank 1, as its rank and the others go through it."""

    def __init__(self, fault, rank):
        self.fault, self.rank = fault, rank
        self.faulty = rank == FAULTY

    @property
    def differs(self):
        """Whether this rank's model is another one than the others'."""
        return self.faulty and self.fault in ("shape", "dtype")

    def run(self, step, other):
        """A step that all ranks do, unless their models differ; then one in which rank 1 has the
        fault. `other`: another collective operation.
        """
        if self.fault in ("killed", "hung", "order"):
            step()
        if self.faulty and self.fault in ("killed", "hung"):
            os.kill(os.getpid(), signal.SIGKILL if self.fault == "killed" else signal.SIGSTOP)
        if self.faulty and self.fault == "order":
            other()
        step()


def rank_of(case, function, place, to, stays):
    """A rank's process: writes the error that it got, and ends unless it `stays`."""
    os.environ.update(place)
    try:
        function(case)
        seen = {"kind": None, "text": "nothing was raised"}
    except BaseException as error:
        seen = {"kind": type(error).__name__, "text": str(error)}
    os.write(to, json.dumps(seen).encode() + b"\n")
    if stays:
        # It is killed once all have answered.
        time.sleep(TIMEOUT_S)
    # No cleaning up with ranks that are gone.
    os._exit(0)


def ask(module, api, fault, port, settings, stays):
    """Forks the ranks; returns the errors of those that should get one. `stays`: no rank ends
    before all have one.
    """
    function = getattr(importlib.import_module(module), api)
    children = {}
    for rank in range(RANKS):
        place = {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(RANKS)}
        place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **settings}
        mine, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(mine)
            rank_of(Case(fault, rank), function, place, theirs, stays)
        os.close(theirs)
        children[rank] = (pid, mine)
    expected = [rank for rank in children if rank != FAULTY or fault not in ("killed", "hung")]
    errors, end = {}, time.monotonic() + TIMEOUT_S
    for rank in expected:
        read = children[rank][1]
        text, ready = _answer(read, end)
        errors[rank] = (
            json.loads(text)
            if text
            else {"kind": None, "text": "no error within the timeout" if not ready else "it ended without an error"}
        )
    for pid, read in children.values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read)
    return errors


def _answer(read, end):
    """A line of JSON from a pipe, or its beginning when the pipe or the time ends; and whether
    the time was enough.
    """
    text = b""
    while not text.endswith(b"\n"):
        if not select.select([read], [], [], max(0, end - time.monotonic()))[0]:
            return text, False
        if not (part := os.read(read, 65536)):
            break
        text += part
    return text, True


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    importlib.import_module(sys.argv[1])
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(ask(sys.argv[1], *json.loads(line))), file=answers, flush=True)
