"""Elastic training with PyTorch: `@hvd.elastic.run`, `hvd.elastic.TorchState`,
`hvd.elastic.ElasticSampler`.
"""

from collections.abc import Callable

from horovod.common.elastic import renew, run_fn
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState
from horovod.torch.mpi_ops import init, shutdown

__all__ = ["ElasticSampler", "TorchState", "run"]


def run(func: Callable) -> Callable:
    """Makes `func(state, ...)` elastic: it is called again, with the state of the workers that
    stayed, each time workers are lost or come. The first argument is a
    `horovod.common.elastic.State`. `func` has to begin without operations of its own: newcomers
    synchronise the state before anything else.
    """
    return run_fn(func, _reset)


def _reset() -> None:
    renew(init, shutdown)
