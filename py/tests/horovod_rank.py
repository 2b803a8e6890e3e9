"""One rank of the tests of `horovod.torch`: joins the world, then does the checks that it is told of, a line each, and answers a line each."""

import importlib
import json
import os
import sys
import traceback

import torch

import horovod.torch as hvd


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    print(json.dumps({"ready": torch.__version__}), flush=True)
    for line in sys.stdin:
        module, name = json.loads(line)
        torch.manual_seed(0)
        try:
            getattr(importlib.import_module(module), name)(hvd.rank(), hvd.size())
            answer = {"ok": True}
        except BaseException:
            answer = {"ok": False, "why": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(__file__))
    main()
