"""What a program sees of ranks that die, come late, or call something else."""

import json
import subprocess

import torch_ranks
from torch_ranks import HERE

pytestmark = torch_ranks.needs_torch()


def saw(what: str, size: int = 2) -> list[dict]:
    """What rank 0 saw, with the exit codes checked."""
    port = torch_ranks.free_port()
    processes = [torch_ranks.start(rank, size, port, str(HERE / "torch_failures.py"), what) for rank in range(size)]
    output = processes[0].communicate(timeout=torch_ranks.PATIENCE_S)[0]
    for process in processes:
        process.wait(torch_ranks.PATIENCE_S)
    assert processes[0].returncode == 0, torch_ranks.said(processes[0])
    return [json.loads(line) for line in output.splitlines()]


def test_a_rank_that_was_killed_is_named():
    error, polled, later = saw("killed")
    assert error["kind"] == "PeerDied" and error["ranks"] == [1] and "rank 1" in error["text"]
    assert "all-reduce" in error["operation"]
    assert (
        polled["kind"] == "PeerDied"
        and polled["ranks"] == [1]
        and "all-reduce" in polled["operation"]
        and polled["success"] is False
    )
    assert polled["first"] == ["PeerDied", [1], error["operation"]]
    assert "rank 1" in later["later"]


def test_a_rank_that_does_not_come_is_named():
    error, *_ = saw("late")
    assert error["kind"] == "DeadlineExceeded" and error["ranks"] == [1] and "barrier" in error["operation"]
    assert (
        error["text"].startswith("Rank 1 failed to pass monitoredBarrier in 3000 ms") and " Timed out " in error["text"]
    )
    assert 2.9 < error["seconds"] < 8


def test_ranks_that_call_different_things_are_told():
    error, *_ = saw("other")
    assert error["kind"] == "Disagreement" and "1000" in error["text"] and "999" in error["text"]


RESTARTED = """
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("shoal")
tensor = torch.ones(1)
dist.all_reduce(tensor)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(1)
os.write(1, b"sum %d\\n" % int(tensor))
"""


def test_ranks_that_torchrun_restarts_meet_again(tmp_path):
    (tmp_path / "train.py").write_text(RESTARTED)
    run = [
        torch_ranks.PYTHON,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "1",
        "--monitor-interval",
        "0.2",
    ]
    run += ["--master-port", str(torch_ranks.free_port()), "train.py"]
    done = subprocess.run(
        run, cwd=tmp_path, env=torch_ranks.environment(), capture_output=True, text=True, timeout=torch_ranks.PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["sum", "2"] * 2
