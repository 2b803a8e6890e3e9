"""What a rank does in tests: the checks that it is told of, a line each, and an answer a line
each.
"""

import importlib
import json
import sys
import traceback
from collections.abc import Callable
from typing import TextIO


def serve(*arguments: int, before: Callable[[], object] = lambda: None, answers: TextIO = sys.stdout) -> None:
    """Says that it is ready, then does checks until standard input ends: functions of these
    arguments, each after a call of `before`.
    """
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        module, name = json.loads(line)
        before()
        try:
            getattr(importlib.import_module(module), name)(*arguments)
            answer = {"ok": True}
        except BaseException:
            answer = {"ok": False, "why": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)
