"""A rank that has TensorFlow: runs the checks that it is told, and says of each whether it holds."""

import importlib
import json
import os
import sys
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def answer(**values) -> None:
    """One line for the test."""
    print(json.dumps(values), file=answers, flush=True)


import horovod.tensorflow as hvd  # noqa: E402 (after its output is silent)

hvd.init()
answer(ready=True)
for line in sys.stdin:
    module, name = json.loads(line)
    try:
        getattr(importlib.import_module(module), name)()
    except BaseException:
        answer(ok=False, why=traceback.format_exc())
    else:
        answer(ok=True)
hvd.shutdown()
