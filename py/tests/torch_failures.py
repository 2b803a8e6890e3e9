"""A rank of test_torch_failures.py: does what it is told until something happens, and says what
it saw as JSON.
"""

import datetime
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import shoal.torch


def main(what: str) -> None:
    seconds = 3 if what == "late" else 60
    dist.init_process_group("shoal", timeout=datetime.timedelta(seconds=60))
    rank = dist.get_rank()
    dist.barrier()
    tensor = torch.ones(1000)
    if rank == 1:
        if what == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "late":
            time.sleep(seconds * 3)
        if what == "other":
            tensor = torch.ones(999)
    began = time.monotonic()
    try:
        if what == "late":
            dist.monitored_barrier(timeout=datetime.timedelta(seconds=seconds))
        else:
            dist.all_reduce(tensor)
    except shoal.torch.CommError as error:
        seen = {"kind": type(error).__name__, "text": str(error), "ranks": error.ranks, "operation": error.operation}
        print(json.dumps(seen | {"seconds": time.monotonic() - began}), flush=True)
    # So does an operation that progresses by itself, also without a wait, and the group.
    work = dist.all_reduce(tensor, async_op=True)
    end = time.monotonic() + 60
    while not work.is_completed() and time.monotonic() < end:
        time.sleep(0.001)
    failed, first = work.exception(), shoal.torch.failure()
    if failed is not None:
        seen = {
            "kind": type(failed).__name__,
            "ranks": failed.ranks,
            "operation": failed.operation,
            "success": work.is_success(),
        }
        print(json.dumps(seen | {"first": [type(first).__name__, first.ranks, first.operation]}), flush=True)
    # A future says the same to those who wait for it.
    try:
        dist.all_reduce(tensor, async_op=True).get_future().wait()
    except RuntimeError as error:
        print(json.dumps({"later": str(error)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
