"""Random numbers apart from torch's own: tensor parallel ranks draw different ones for their
parts of a tensor, and equal ones elsewhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["RngTracker"]

NAME = "model-parallel-rng"


class RngTracker:
    """States of random number generators by name; inside `fork`, torch draws from that one."""

    def __init__(self, seed: int) -> None:
        self._states: dict[str, list[torch.Tensor]] = {}
        self.add(NAME, seed)

    def add(self, name: str, seed: int) -> None:
        """Another generator. Raises `ValueError` if there is one of that name."""
        if name in self._states:
            raise ValueError(f"there are random numbers named {name} already")
        with _own():
            torch.manual_seed(seed)
            self._states[name] = _states()

    def get_states(self) -> dict[str, list[torch.Tensor]]:
        """For checkpoints."""
        return {name: [it.clone() for it in states] for name, states in self._states.items()}

    def set_states(self, states: dict[str, list[torch.Tensor]]) -> None:
        """From a checkpoint."""
        self._states = {name: [it.clone() for it in given] for name, given in states.items()}

    @contextmanager
    def fork(self, name: str = NAME) -> Iterator[None]:
        """Draws from the generator of that name. Raises `KeyError` if there is none."""
        if name not in self._states:
            raise KeyError(f"there are no random numbers named {name}; add(name, seed) makes them")
        with _own():
            _restore(self._states[name])
            try:
                yield
            finally:
                self._states[name] = _states()


@contextmanager
def _own() -> Iterator[None]:
    outside = _states()
    try:
        yield
    finally:
        _restore(outside)


def _states() -> list[torch.Tensor]:
    cuda = [torch.cuda.get_rng_state()] if torch.cuda.is_available() else []
    return [torch.get_rng_state(), *cuda]


def _restore(states: list[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state(states[1])
