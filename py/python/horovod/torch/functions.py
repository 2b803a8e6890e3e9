"""Broadcasts of parameters and optimizer state; broadcast and all-gather of objects."""

import ctypes
import pickle
import sys
from contextlib import nullcontext

import torch

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.gathers import allgather, broadcast_, start_broadcast
from horovod.torch.mpi_ops import rank
from horovod.torch.submission import names

try:
    from cloudpickle import dumps
except ImportError:  # lambdas and local classes then cannot be sent
    from pickle import dumps


def _memory(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Contiguous memory for each: its own, or a copy."""
    return [it.detach() if it.is_contiguous() else it.detach().contiguous() for it in tensors]


def _broadcast_in_place(
    tensors: list[torch.Tensor], each: list[str], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Broadcasts root's tensors in place, whatever their devices and strides."""
    # An operation has tensors of one device.
    for where in dict.fromkeys(it.device for it in tensors):
        some = [number for number, it in enumerate(tensors) if it.device == where]
        memory = _memory([tensors[number] for number in some])
        start_broadcast(memory, [each[number] for number in some], root_rank, process_set, grouped=True).wait()
        with torch.no_grad():
            for number, it in zip(some, memory, strict=True):
                if it.data_ptr() != tensors[number].data_ptr():
                    tensors[number].copy_(it)


def broadcast_parameters(params, root_rank: int) -> None:
    """Gives root's tensors to all ranks, in place: those of a dict such as `model.state_dict()`,
    or of a list of tensors or of (name, tensor). `ValueError` for anything else, as a generator.
    """
    if isinstance(params, dict):
        params = sorted(params.items())
    elif isinstance(params, list):
        params = [it if isinstance(it, tuple) else (None, it) for it in params]
    else:
        raise ValueError(
            f"invalid params of type: {type(params)}; give a dict, as model.state_dict(), or a list, as list(model.named_parameters())"
        )
    tensors, each = [], []
    for name, it in params:
        if it is None:
            continue
        if not isinstance(it, torch.Tensor):
            raise ValueError(
                f"broadcast_parameters: {name!r} is of type {type(it).__name__}, not a tensor; use broadcast_object for it"
            )
        tensors.append(it)
        each.append(names("broadcast", name, global_process_set))
    if tensors:
        _broadcast_in_place(tensors, each, root_rank)


class _Tensor:
    """Stands for a tensor in the pickled part of an optimizer's state."""

    def __init__(self, tensor: torch.Tensor):
        self.shape, self.dtype, self.on_host = tuple(tensor.shape), tensor.dtype, tensor.device.type == "cpu"


def _flattened(it, tensors: list[torch.Tensor]):
    """The nested structure with placeholders for its tensors, which are appended to the list."""
    if isinstance(it, torch.Tensor):
        tensors.append(it)
        return _Tensor(it)
    if isinstance(it, dict):
        return {key: _flattened(value, tensors) for key, value in it.items()}
    if type(it) in (list, tuple):
        return type(it)(_flattened(value, tensors) for value in it)
    return it


def _unflattened(it, own, device: torch.device, tensors: list[torch.Tensor]):
    """The structure with tensors to receive into at the placeholders: this rank's own where they
    fit, else new ones.
    """
    if isinstance(it, _Tensor):
        fits = (
            isinstance(own, torch.Tensor)
            and tuple(own.shape) == it.shape
            and own.dtype is it.dtype
            and (own.device.type == "cpu") == it.on_host
        )
        found = own if fits else torch.empty(it.shape, dtype=it.dtype, device="cpu" if it.on_host else device)
        tensors.append(found)
        return found
    if isinstance(it, dict):
        return {
            key: _unflattened(value, own.get(key) if isinstance(own, dict) else None, device, tensors)
            for key, value in it.items()
        }
    if type(it) in (list, tuple):
        owns = own if isinstance(own, (list, tuple)) and len(own) == len(it) else [None] * len(it)
        return type(it)(_unflattened(value, mine, device, tensors) for value, mine in zip(it, owns, strict=True))
    return it


def _no_pass():
    """In this block, steps are not passes of large batch simulation."""
    passes = sys.modules.get("shoal.torch.large_batch_passes")
    return nullcontext() if passes is None else passes.inside()


def _make_state(optimizer: torch.optim.Optimizer, model: torch.nn.Module | None) -> None:
    """A step with zero gradients, so that the optimizer makes its state; parameters keep their
    values.
    """
    sparse = set()
    if model is not None:
        embeddings = (torch.nn.Embedding, torch.nn.EmbeddingBag)
        sparse = {id(it.weight) for it in model.modules() if isinstance(it, embeddings) and it.sparse}
    parameters = [it for group in optimizer.param_groups for it in group["params"]]
    with torch.no_grad():
        for it in parameters:
            if it.requires_grad:
                zero = torch.zeros_like(it, memory_format=torch.contiguous_format)
                it.grad = zero.to_sparse(1) if id(it) in sparse else zero
        kept = [it.detach().clone() for it in parameters]
        # Of a DistributedOptimizer, the step of the optimizer's own class: nothing is reduced.
        step = getattr(optimizer, "local_step", optimizer.step)
        with _no_pass():
            step()
        for it, value in zip(parameters, kept, strict=True):
            it.copy_(value)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Gives root's state, learning rate and other options to all ranks. An optimizer without
    state makes it by a step with zero gradients, which leaves the parameters as they are; one
    that has none even then is left alone. `model` tells which gradients are sparse. `ValueError`
    for LBFGS.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    if not optimizer.state_dict()["state"]:
        _make_state(optimizer, model)
    if not optimizer.state_dict()["state"]:
        return
    parameters = [it for group in optimizer.param_groups for it in group["params"]]
    options = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    state = {number: dict(optimizer.state[it]) for number, it in enumerate(parameters) if it in optimizer.state}
    tensors: list[torch.Tensor] = []
    mine = (state, options)
    told = broadcast_object(_flattened(mine, tensors), root_rank, name="optimizer_state")
    if rank() != root_rank:
        state, options = _received(told, mine, parameters, tensors := [])
    _broadcast_in_place(tensors, [f"broadcast.optimizer_state.{number}" for number in range(len(tensors))], root_rank)
    if rank() != root_rank:
        for number, of_one in state.items():
            optimizer.state[parameters[number]] = of_one
        for group, of_one in zip(optimizer.param_groups, options, strict=True):
            group.update(of_one)


def _received(told, mine, parameters, tensors: list[torch.Tensor]):
    """State and options to receive into."""
    (state, options), (own_state, own_options) = told, mine
    if len(options) != len(own_options) or any(number >= len(parameters) for number in state):
        raise ValueError(
            f"broadcast_optimizer_state: root's optimizer has {len(options)} groups and state for parameter {max(state)}, this rank's {len(own_options)} groups of "
            f"{len(parameters)} parameters; make the same optimizer on all ranks"
        )
    state = {
        number: _unflattened(it, own_state.get(number), parameters[number].device, tensors)
        for number, it in state.items()
    }
    return state, [
        _unflattened(it, own, torch.device("cpu"), tensors) for it, own in zip(options, own_options, strict=True)
    ]


def _bytes(data: torch.Tensor) -> bytes:
    """The bytes of a tensor, without NumPy."""
    return ctypes.string_at(data.data_ptr(), data.numel())


def broadcast_object(obj, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set):
    """Root's object, pickled (by cloudpickle where it is there), on all ranks; root gets its
    own.
    """
    called = names("broadcast_object", name, process_set)
    if rank() == root_rank:
        data = torch.frombuffer(bytearray(dumps(obj)), dtype=torch.uint8)
        length = torch.tensor([data.numel()])
        broadcast_(length, root_rank, f"{called}.length", process_set)
    else:
        length = torch.zeros(1, dtype=torch.int64)
        broadcast_(length, root_rank, f"{called}.length", process_set)
        data = torch.empty(int(length), dtype=torch.uint8)
    broadcast_(data, root_rank, f"{called}.data", process_set)
    return obj if rank() == root_rank else pickle.loads(_bytes(data))


def allgather_object(obj, name: str | None = None, process_set: ProcessSet = global_process_set) -> list:
    """All ranks' objects, in rank order, pickled (by cloudpickle where it is there)."""
    called = names("allgather_object", name, process_set)
    data = torch.frombuffer(bytearray(dumps(obj)), dtype=torch.uint8)
    lengths = allgather(torch.tensor([data.numel()]), f"{called}.lengths", process_set).tolist()
    joined = allgather(data, f"{called}.data", process_set)
    return [pickle.loads(_bytes(it)) for it in joined.split(lengths)]
