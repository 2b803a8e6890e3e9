"""`shoal.parameter_server` as scripts use it: processes that push and pull."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import shoal

PROGRAM = Path(__file__).with_name("parameter_ranks.py")
PATIENCE_S = 240


def start(what: str, size: int, **more: str) -> list[subprocess.Popen]:
    """A process for each rank."""
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        port = it.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size), **more}
    path = {"PYTHONPATH": str(Path(shoal.__file__).parents[1])}
    return [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), what],
            env={**os.environ, **place, **path, "RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def output(rank: subprocess.Popen) -> list[dict]:
    """What it says until its end."""
    try:
        return [json.loads(line) for line in rank.communicate(timeout=PATIENCE_S)[0].splitlines()]
    finally:
        rank.kill()


def ended(ranks: list[subprocess.Popen], codes: list[int] | None = None) -> list[list[dict]]:
    """What each has said."""
    outputs = [output(rank) for rank in ranks]
    assert [rank.returncode for rank in ranks] == (codes or [0] * len(ranks)), outputs
    return outputs


def test_in_step_all_see_the_same():
    said = ended(start("in_step", 3))
    for rank, [line] in enumerate(said):
        assert (line["rank"], line["size"], line["scale"]) == (rank, 3, [9.0])
        assert line["seen"] == [[[0.5 + 111.0 * step] * 5] * 3 for step in range(4)]


def test_servers_apart_and_workers_within_a_bound():
    [[server], *workers] = ended(start("dedicated", 3))
    assert "this rank is no worker" in server["text"]
    for [line] in workers:
        # 20 of its own, and all of the other's but the two by which that may be behind.
        assert 38 <= line["most"] <= 40 and line["clock"] == 21


def test_a_worker_that_raises_is_lost_and_the_others_go_on():
    ranks = start("raises", 3)
    # The others end while the process of rank 1 still lives.
    for rank in (0, 2):
        [line] = output(ranks[rank])
        # What it pushed in its second step, which it did not end, does not count.
        assert line["total"] == [9.0] and line["lost"] == [1], line
        if rank == 0:
            [[lost, kind, text]] = line["ended"]
            assert (lost, kind) == (1, "PeerGaveUp") and "rank 1 gave up: its program could not go on" in text
    assert ranks[1].poll() is None
    [line] = ended(ranks[1:2])[0]
    assert line["raised"]


def test_a_loss_that_is_not_tolerated_ends_all():
    ranks = start("raises_and_all_end", 3)
    for rank in (0, 2):
        [line] = output(ranks[rank])
        # Who hears of it late may hear of the other, too, which has given up for the same reason;
        # who is slow, in the step in which it was.
        ranks_lost, step = line["ranks"], line["number"]
        assert (
            1 in ranks_lost and step in (2, 3) and f"ranks {ranks_lost} were lost before step {step}" in line["text"]
        ), line
    assert ended(ranks[1:2]) == [[]]


def test_a_server_that_hangs_is_said_each_time():
    worker, server = start("hangs", 2, SHOAL_COMM_DEADLINE="2", SHOAL_COMM_HEARTBEAT="100")
    os.kill(json.loads(server.stdout.readline())["pid"], signal.SIGSTOP)
    worker.stdin.write("\n")
    worker.stdin.flush()
    [line] = ended([worker])[0]
    server.kill()
    server.wait()
    assert len(line["said"]) == 4 and len(set(line["said"])) == 1 and "send" in line["said"][0], line


def test_one_after_the_other_and_forked_processes():
    for [line] in ended(start("twice", 2)):
        assert line["totals"] == [[2.0], [2.0, 2.0]]


def test_a_server_that_is_killed_is_named():
    [[line], _] = ended(start("killed", 2), [0, -9])
    assert line["ranks"] == [1] and "rank 1" in line["text"]


def test_patience_and_signals():
    first, second = start("late", 2)

    def said() -> dict:
        return json.loads(first.stdout.readline())

    line = said()
    assert line["ranks"] == [1] and "0.500 s" in line["text"], line
    second.stdin.write("\n")
    second.stdin.flush()
    first.stdin.write("\n")
    first.stdin.flush()
    assert said() == {"clock": 1}
    # The other has not ended: a signal's handler runs all the same.
    first.send_signal(signal.SIGUSR1)
    assert said() == {"interrupted": True}
    second.stdin.write("\n")
    second.stdin.flush()
    assert ended([first, second]) == [[], []]


def test_mistakes_are_told():
    expected = [
        "the shape of 'a' is (-1,)",
        'there is no consistency "eventual"',
        "consistency is -1",
        "rank 2 is not in this group; its ranks are 0 to 1",
        "rank -1 is not in this group",
        "the shape of 'a' is (1099511627776, 1099511627776)",
        "no room for this server's part",
        "there is no worker; name at least one rank",
        "ranks [1] gave another specification than rank 0",
        "there is no tensor 'b'; there are a",
        "values for 'a' are no array of float32, and there is no NumPy",
        "tensor 'a' has the shape (2, 3), not (5,)",
        "tensor 'a' has the shape (2, 3), not (3, 2)",
        "values for 'a' are no array of float32",
        "values for 'a' are no array of float32",
        "there is no push 'multiply'",
        "the memory for 'a' cannot be written",
        "this rank is no worker, or has ended",
    ]
    for [line] in ended(start("mistakes", 2)):
        assert line["total"] == [[2.0] * 3] * 2
        assert len(line["said"]) == len(expected), line["said"]
        for (kind, text), part in zip(line["said"], expected, strict=True):
            assert kind == "ConfigError" and part in text, (kind, text, part)
