"""Work on a GPU beside the caller's: begins after what the caller has queued so far, and the
caller's stream waits for it when the result is asked for.
"""

from collections.abc import Iterable

import torch

_sides: dict[int, torch.cuda.Stream] = {}


class _Side:
    """A stream of the device for operations; `with` it, `join` makes the caller's stream wait."""

    def __init__(self, device: torch.device):
        self._device = device
        if device.index not in _sides:
            _sides[device.index] = torch.cuda.Stream(device)
        self._stream = _sides[device.index]
        self._ready, self._done = torch.cuda.Event(), torch.cuda.Event()
        self._ready.record(torch.cuda.current_stream(device))

    def __enter__(self) -> None:
        self._context = torch.cuda.stream(self._stream)
        self._context.__enter__()
        self._stream.wait_event(self._ready)

    def __exit__(self, *raised) -> None:
        self._done.record(self._stream)
        self._context.__exit__(*raised)

    def join(self, made: Iterable[torch.Tensor]) -> None:
        """The caller's stream goes on when the operation is done. What was `made` is this
        stream's memory: when the caller lets go of it, it is not used anew before the caller's
        stream is done with it.
        """
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(self._done)
        for it in made:
            it.record_stream(stream)


class _Nothing:
    """On the processor all is done at once."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised) -> None:
        pass

    def join(self, made: Iterable[torch.Tensor]) -> None:
        """Nothing to wait for."""


def of(tensor: torch.Tensor) -> _Side | _Nothing:
    """A place for work on a tensor's device, to be made by the caller's thread."""
    return _Side(tensor.device) if tensor.device.type == "cuda" else _Nothing()
