"""What each rank does in the tests of the parameter server: a function's name is the program's
argument.
"""

import json
import os
import signal
import sys
from array import array

from shoal.comm import CommError, ConfigError, DeadlineExceeded, Group, PeerDied, PeerGaveUp
from shoal.parameter_server import ParameterServer

SHAPES = {"weights": (3, 5), "bias": 7, "scale": (), "nothing": (0, 4)}


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def floats(length: int, value: float) -> array:
    return array("f", [value] * length)


def in_step() -> None:
    with ParameterServer(SHAPES) as server:
        if server.rank == 0:
            server.push("weights", memoryview(floats(15, 0.5)).cast("B").cast("f", (3, 5)), how="assign")
        server.advance()
        seen = []
        for step in range(3):
            seen.append(server.pull("weights").tolist())
            # Memory that cannot be written is pushed, too.
            server.push("weights", memoryview(bytes(floats(15, 10.0**server.rank))).cast("f"))
            server.push("scale", floats(1, 1.0))
            server.push("nothing", array("f"))
            assert server.advance() == (step + 2, [])
        own = floats(7, -1.0)
        assert server.pull("bias", into=own).tolist() == own.tolist() == [0.0] * 7
        assert server.pull("nothing").nbytes == 0
        scale = server.pull("scale").tolist()
        # Nobody pushes any more: all have what is last.
        seen.append(server.pull("weights").tolist())
    say(rank=server.rank, size=server.size, seen=seen, scale=scale)


def dedicated() -> None:
    with ParameterServer({"sum": 1}, servers=[0], workers=[1, 2], consistency=2) as server:
        if server.rank == 0:
            try:
                server.advance()
            except ConfigError as error:
                say(rank=0, text=str(error))
            return
        ahead = 0
        for _ in range(20):
            server.push("sum", floats(1, 1.0))
            server.advance()
            # What the other has done at least: it is at most two behind.
            ahead = max(ahead, server.pull("sum")[0])
        say(rank=server.rank, most=ahead, clock=server.advance().clock)


def raises() -> None:
    """Rank 1 raises in its second step; the others go on, and are told."""
    try:
        with ParameterServer({"sum": 40}, servers=[0], patience=60, tolerates_loss=True) as server:
            for step in range(4):
                server.push("sum", floats(40, 1.0))
                if server.rank == 1 and step == 1:
                    raise ValueError("a mistake in a script")
                advanced = server.advance()
            total, lost = set(server.pull("sum")), advanced.lost
            server.advance()
            ended = [[rank, type(error).__name__, str(error)] for rank, error in server.end()]
            say(rank=server.rank, total=sorted(total), lost=lost, ended=ended)
    except ValueError:
        say(rank=server.rank, raised=True)
        # The process lives on: it is the with statement that has told the others.
        sys.stdin.read()


def killed() -> None:
    """Rank 1, with a part of the tensors, is killed."""
    with ParameterServer({"sum": 100}) as server:
        try:
            server.advance()
            if server.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            while True:
                server.pull("sum")
        except PeerDied as error:
            say(rank=server.rank, ranks=error.ranks, text=str(error))
        os._exit(0)


def raises_and_all_end() -> None:
    """Rank 1 raises, and a loss is not tolerated."""
    try:
        with ParameterServer({"sum": 40}) as server:
            while True:
                if server.advance().clock == 2 and server.rank == 1:
                    raise ValueError("a mistake in a script")
    except PeerGaveUp as error:
        say(ranks=error.ranks, number=error.number, text=str(error))
    except ValueError:
        # The others have heard of it when this process ends.
        sys.stdin.read()


def hangs() -> None:
    """Rank 1, a server, is stopped; what could not be sent to it in time is said again, and no
    clock runs away.
    """
    with ParameterServer({"sum": 1 << 22}, servers=[1], workers=[0]) as server:
        if server.rank == 1:
            say(pid=os.getpid())
            return
        sys.stdin.readline()
        said = []
        try:
            while True:
                server.push("sum", floats(1 << 22, 1.0))
        except DeadlineExceeded as error:
            said.append(str(error))
        for call in (server.advance, server.advance, lambda: server.pull("sum")):
            try:
                call()
            except DeadlineExceeded as error:
                said.append(str(error))
        say(said=said)
        os._exit(0)


def twice() -> None:
    """One after the other, and a process forked within."""
    totals = []
    for shape in (1, 2):
        with ParameterServer({"sum": shape}) as server:
            server.push("sum", floats(shape, 1.0))
            server.advance()
            child = os.fork()
            if not child:
                try:
                    server.advance()
                except ConfigError as error:
                    assert "forked" in str(error)
                    del server
                    sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            server.advance()
            totals.append(server.pull("sum").tolist())
    say(totals=totals)


def late() -> None:
    """Rank 1 does not come; rank 0 loses patience, then waits on, then is told to stop by a
    signal while it waits.
    """
    with ParameterServer({"sum": 1}, consistency=0, patience=0.5) as server:
        if server.rank == 1:
            sys.stdin.readline()
            server.advance()
            sys.stdin.readline()
            return
        try:
            server.advance()
        except DeadlineExceeded as error:
            say(ranks=error.ranks, text=str(error))
        sys.stdin.readline()
        while True:
            try:
                clock = server.advance().clock
                break
            except DeadlineExceeded:
                pass

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        try:
            signal.signal(signal.SIGUSR1, interrupt)
            say(clock=clock)
            server.end()
        except KeyboardInterrupt:
            say(interrupted=True)


def mistakes() -> None:
    group = Group.join({})
    said = []

    def wrong(call: object) -> None:
        try:
            call()
        except CommError as error:
            said.append([type(error).__name__, str(error)])

    wrong(lambda: ParameterServer({"a": -1}, group=group))
    wrong(lambda: ParameterServer({"a": 1}, group=group, consistency="eventual"))
    wrong(lambda: ParameterServer({"a": 1}, group=group, consistency=-1))
    wrong(lambda: ParameterServer({"a": 1}, group=group, servers=[2]))
    wrong(lambda: ParameterServer({"a": 1}, group=group, servers=[-1]))
    wrong(lambda: ParameterServer({"a": (1 << 40, 1 << 40)}, group=group))
    wrong(lambda: ParameterServer({"a": 1 << 60}, group=group))
    wrong(lambda: ParameterServer({"a": 1}, group=group, workers=[]))
    wrong(lambda: ParameterServer({"a": 1 + group.rank}, group=group))
    with ParameterServer({"a": (2, 3)}, group=group) as server:
        wrong(lambda: server.pull("b"))
        wrong(lambda: server.push("a", array("d", [0.0] * 6)))
        wrong(lambda: server.push("a", floats(5, 0.0)))
        wrong(lambda: server.push("a", memoryview(floats(6, 0.0)).cast("B").cast("f", (3, 2))))
        wrong(lambda: server.push("a", memoryview(floats(12, 0.0))[::2]))
        wrong(lambda: server.push("a", [0.0] * 6))
        wrong(lambda: server.push("a", floats(6, 0.0), how="multiply"))
        wrong(lambda: server.pull("a", into=memoryview(bytes(24)).cast("f")))
        server.push("a", floats(6, 1.0))
        server.advance()
        # It goes on after all that.
        total = server.pull("a").tolist()
    wrong(server.advance)
    say(rank=group.rank, said=said, total=total)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
