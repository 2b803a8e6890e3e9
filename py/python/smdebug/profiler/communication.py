"""What a step waits for other ranks: in the operations of `shoal.torch` (torch's backend, DDP) and of
Horovod. Those of NCCL and Gloo do not pass through Python and are not seen.
"""

import functools
import time

from smdebug.profiler.steps import OBSERVER

#: Modules, and what waits in them: a class and its method, or a function.
_WAITS = {"shoal.torch.work": "Work.wait", "horovod.torch.handles": "synchronize"}


def attach(module) -> None:
    """Sees the waits of this module."""
    if not OBSERVER.start():
        return
    *owner, name = _WAITS[module.__name__].split(".")
    owner = getattr(module, owner[0]) if owner else module
    original = getattr(owner, name)

    @functools.wraps(original)
    def wait(*args, **kwargs):
        begin = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            OBSERVER.spent("communication", begin)

    setattr(owner, name, wait)
