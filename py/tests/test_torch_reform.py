"""Training goes on after a rank was killed: the survivors alone, or with a replacement."""

import json

import torch_ranks
from torch_ranks import HERE

pytestmark = torch_ranks.needs_torch()

PROGRAM = str(HERE / "torch_reform.py")


def ended(process) -> dict:
    """What a rank said, which has to have ended well."""
    output = process.communicate(timeout=torch_ranks.PATIENCE_S)[0]
    assert process.returncode == 0, torch_ranks.said(process)
    return json.loads(output.splitlines()[-1])


def test_survivors_go_on_without_the_rank_that_was_killed():
    port = torch_ranks.free_port()
    processes = [torch_ranks.start(rank, 3, port, PROGRAM, "shrink") for rank in range(3)]
    said = [ended(processes[0]), ended(processes[2])]
    assert processes[1].wait() == -9
    assert [(it["first"], it["rank"], it["size"]) for it in said] == [(0, 0, 2), (2, 1, 2)]
    for it in said:
        assert (
            it["failure"]["kind"] == "PeerDied"
            and it["failure"]["ranks"] == [1]
            and "all-reduce" in it["failure"]["operation"]
        ), it


def test_a_replacement_takes_the_place_of_the_rank_that_was_killed():
    port = torch_ranks.free_port()
    processes = [torch_ranks.start(rank, 3, port, PROGRAM, "rejoin") for rank in range(3)]
    assert processes[1].wait(torch_ranks.PATIENCE_S) == -9
    replacement = torch_ranks.start(1, 3, port, PROGRAM, "rejoin", SHOAL_COMM_REPLACES="1")
    said = [ended(it) for it in (processes[0], replacement, processes[2])]
    assert [(it["first"], it["rank"], it["size"]) for it in said] == [(0, 0, 3), (1, 1, 3), (2, 2, 3)]
    assert said[1]["failure"] is None
    for it in (said[0], said[2]):
        assert it["failure"]["kind"] == "PeerDied" and it["failure"]["ranks"] == [1], it
