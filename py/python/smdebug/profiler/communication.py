"""What a step waits for other ranks: in the operations of `shoal.torch` (torch's backend, DDP) and of
Horovod. Those of NCCL and Gloo do not pass through Python and are not seen.

DDP waits in C++ for the reductions that it began while gradients were computed: the wait is what a
backward pass still takes after it has begun the last one.
"""

import functools
import time

from smdebug.profiler.steps import OBSERVER

#: By module: a class, and those of its methods that wait and that begin an operation.
_OPERATIONS = {
    "shoal.torch.work": ("Work", ["wait"], []),
    "shoal.torch.collectives": ("Collectives", ["_run"], ["_start"]),
    "horovod.torch.handles": ("Pending", ["wait"], []),
}


def attach(module) -> None:
    """Sees the operations of this module."""
    if not OBSERVER.start():
        return
    name, waits, begins = _OPERATIONS[module.__name__]
    owner = getattr(module, name)
    for method in waits:
        setattr(owner, method, _waits(getattr(owner, method)))
    for method in begins:
        setattr(owner, method, _begins(getattr(owner, method)))


def _waits(original):
    @functools.wraps(original)
    def wait(*args, **kwargs):
        begin = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            OBSERVER.spent("communication", begin)

    return wait


def _begins(original):
    @functools.wraps(original)
    def start(*args, **kwargs):
        OBSERVER.launched = time.perf_counter()
        return original(*args, **kwargs)

    return start
