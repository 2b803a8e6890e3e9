"""Steps of PyTorch: from the end of an optimizer's step to the end of its next one. Of several
optimizers the first one counts. Times are the program's: what a GPU still computes is seen where the
program waits for it.
"""

import functools
import time
import weakref

from smdebug.profiler.steps import OBSERVER

_now = time.perf_counter


def attach(torch) -> None:
    """Sees optimizers, backward passes and data loaders."""
    if not OBSERVER.start():
        return
    _observe_optimizers(torch)
    _observe_backward(torch)
    _observe_loaders(torch)


def _observe_optimizers(torch) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    is_compiling = torch.compiler.is_compiling
    leader, begun = [None], [None]

    def before(optimizer, _args, _kwargs):
        if not is_compiling():
            begun[0] = _now()

    def after(optimizer, _args, _kwargs):
        # The step of a wrapper (Horovod's) ends with the step that it has called.
        if is_compiling() or begun[0] is None:
            return
        OBSERVER.follow_thread()
        OBSERVER.spent("optimizer", begun[0])
        begun[0] = None
        first = leader[0]() if leader[0] is not None else None
        if first is None:
            leader[0] = weakref.ref(optimizer)
        if first is None or first is optimizer:
            OBSERVER.call("end", _now())

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def _observe_backward(torch) -> None:
    original = torch.Tensor.backward
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def backward(self, *args, **kwargs):
        if is_compiling():
            return original(self, *args, **kwargs)
        return OBSERVER.backward(original, self, *args, **kwargs)

    torch.Tensor.backward = backward


def _observe_loaders(torch) -> None:
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    def timed(owner, name):
        original = getattr(owner, name)

        @functools.wraps(original)
        def call(self):
            begin = _now()
            try:
                return original(self)
            finally:
                OBSERVER.spent("data", begin)

        setattr(owner, name, call)

    timed(_BaseDataLoaderIter, "__next__")
    # Processes that load data are started here.
    timed(DataLoader, "__iter__")
