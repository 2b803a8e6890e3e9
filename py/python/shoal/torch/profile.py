"""What torch's profiler shows of this backend: events `shoal:all_reduce` and so on, with the
shapes of the tensors.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch._C._profiler import _RecordFunctionFast
from torch.autograd.profiler import record_function

is_on = torch._C._autograd._profiler_enabled


def event(kind: str, tensors: Sequence[torch.Tensor]) -> AbstractContextManager:
    """The event of an operation that is done on the caller's thread."""
    return _RecordFunctionFast(f"shoal:{kind}", tuple(tensors))


def begin(kind: str, tensors: Sequence[torch.Tensor]) -> record_function:
    """Begins the event of an operation that progresses by itself. The profiler takes no tensors
    here: their shapes are its argument.
    """
    return record_function(f"shoal:{kind}", str([list(tensor.shape) for tensor in tensors])).__enter__()


def end(begun: record_function, work: dist.Work) -> torch.futures.Future:
    """Lets the event end with the operation, well or not; a future of that."""
    return begun._call_end_callbacks_on_future(work.get_future())
