"""The state of a PyTorch training."""

import copy
from typing import Any

import torch

from horovod.common.elastic import ObjectState
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from horovod.torch.mpi_ops import rank


class TorchState(ObjectState):
    """A model, an optimizer, and whatever else is given by name; each becomes an attribute.

    Models, optimizers and `ElasticSampler`s, under any name, are kept through their `state_dict`;
    everything else as an object.
    """

    def __init__(
        self, model: torch.nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None, **kwargs: Any
    ):
        values = {**kwargs, "model": model, "optimizer": optimizer}
        handlers = {name: _handler(value) for name, value in values.items()}
        self._handlers = {name: handler for name, handler in handlers.items() if handler is not None}
        for name, handler in self._handlers.items():
            object.__setattr__(self, name, handler.value)
        others = {name: value for name, value in values.items() if name not in self._handlers}
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **others)

    def save(self) -> None:
        """Keeps copies of everything."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Goes back to the copies."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """All workers get rank 0's values, and keep them."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()
        self.save()

    def reset(self) -> None:
        """Deals the samples that are left to the workers of now."""
        for handler in self._handlers.values():
            handler.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_handlers", {}):
            self._handlers[name].set_value(value)
        super().__setattr__(name, value)


class StateHandler:
    """Keeps one value that has a `state_dict`."""

    def __init__(self, value: Any):
        self.value = value
        self.save()

    def save(self) -> None:
        """Keeps a copy."""
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        """Goes back to the copy."""
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """Gives rank 0's to all."""
        raise NotImplementedError(
            f"{type(self).__name__} has to say how its value is given to all workers: define sync()"
        )

    def reset(self) -> None:
        """The workers have changed."""

    def set_value(self, value: Any) -> None:
        """Another object takes its place."""
        self.value = value
        self.save()


class ModelStateHandler(StateHandler):
    """Keeps a model."""

    def sync(self) -> None:
        """Gives rank 0's parameters and buffers to all."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)


class OptimizerStateHandler(StateHandler):
    """Keeps an optimizer."""

    def sync(self) -> None:
        """Gives rank 0's state and options to all."""
        broadcast_optimizer_state(self.value, root_rank=0)


class SamplerStateHandler(StateHandler):
    """Keeps an `ElasticSampler`."""

    def sync(self) -> None:
        """All go to rank 0's place."""
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))

    def reset(self) -> None:
        """Deals what is left anew."""
        self.value.reset()


_registry: list[tuple[type, type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    """Which handler keeps values of which type; the first that fits counts."""
    return _registry


def set_handler_registry(registry: list[tuple[type, type[StateHandler]]]) -> None:
    """Sets it."""
    global _registry
    _registry = registry


def _handler(value: Any) -> StateHandler | None:
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    return None
