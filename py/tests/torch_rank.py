"""One rank of the tests of `shoal.torch`: forms the group, then does the checks that it is told of, a line each, and answers a line each."""

import importlib
import json
import os
import sys
import traceback

import torch
import torch.distributed as dist

import shoal.torch  # noqa: F401 (registers the backend)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(os.environ.get("SHOAL_TEST_BACKEND", "shoal"))
    print(json.dumps({"ready": torch.__version__}), flush=True)
    for line in sys.stdin:
        module, name = json.loads(line)
        torch.manual_seed(0)
        try:
            getattr(importlib.import_module(module), name)(dist.get_rank(), dist.get_world_size())
            answer = {"ok": True}
        except BaseException:
            answer = {"ok": False, "why": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(__file__))
    main()
