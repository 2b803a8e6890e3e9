"""Measuring."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from torch.sagemaker.logger import get_logger

__all__ = ["timeit"]


@contextmanager
def timeit(condition: bool, message: str, rank: int = 0) -> Iterator[None]:
    """If `condition` is true and this is rank 0 (`rank`: this process's), logs how long the
    block took, in seconds.
    """
    begun = time.perf_counter()
    yield
    if condition and rank == 0:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        get_logger().info("%s: %.3f s", message, time.perf_counter() - begun)
