"""`DistributedOptimizer`: an optimizer whose gradients are reduced over all ranks while the
backward pass goes on.
"""

import inspect
import os
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from horovod.common import engine, simulation
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list
from horovod.common.world import reduction
from horovod.torch.adasum import _DistributedAdasumOptimizer
from horovod.torch.compression import Compression
from horovod.torch.counting import RACE, Named
from horovod.torch.mpi_ops import Adasum, Average, Max, allreduce_, local_size, rank, size
from horovod.torch.reductions import reduce, sparse_allreduce_async

#: Gradients are submitted in batches of at least this many bytes.
PACK_BYTES = 4 << 20

TWICE = (
    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). "
    "This can cause training slowdown. You may want to consider using optimizer.skip_synchronize() context if you use "
    "optimizer.synchronize() in your code."
)


class _Batch:
    """Gradients that were submitted together."""

    __slots__ = ("gradients", "pending")

    def __init__(self):
        self.pending = None
        #: Parameter, what was submitted for it, what decompression needs.
        self.gradients: list[tuple] = []


class _DistributedOptimizer(Named):
    """Reduces gradients, then steps."""

    def _distribute(
        self, named_parameters, compression, passes, op, predivide, groups, sparse_as_dense, process_set
    ) -> None:
        self._name(named_parameters)
        self._compression, self.op, self.sparse_as_dense, self.process_set = (
            compression,
            op,
            sparse_as_dense,
            process_set,
        )
        self.gradient_predivide_factor = predivide
        self._should_synchronize = True
        #: Passes of large batch simulation, if the job is one.
        self._simulation = None
        #: What was submitted and not yet waited for, and what waits for more.
        self._handles: dict[torch.Tensor, _Batch] = {}
        self._waiting: list[torch.Tensor] = []
        self._waiting_bytes = 0
        #: Parameters whose gradients are sparse: a rank that has none in a step gives an empty one.
        self._sparse: set[torch.Tensor] = set()
        alone = size() == 1 and not engine.flag("HOROVOD_ELASTIC")
        groups = _checked(groups)
        self._prepare(passes, bool(process_set.included()) and not alone)
        if isinstance(groups, int):
            groups = split_list(self._requires_update, groups) if groups else []
        mine = set(self._requires_update)
        self._groups: dict[torch.Tensor, list[torch.Tensor]] = {}
        for group in groups:
            members = [it for it in group if it in mine]
            self._groups.update((it, members) for it in members)

    def load_state_dict(self, *args, **kwargs):
        """Loads a state. Gradients that are under way are finished, and passes are counted anew."""
        # An elastic state is restored after just such a failure; what was under way has been waited
        # for.
        with suppress(HorovodInternalError):
            self._finish()
        self._synchronized = False
        self.set_backward_passes_per_step(self.backward_passes_per_step)
        super().load_state_dict(*args, **kwargs)

    def _counted(self, parameter: torch.Tensor) -> None:
        if super()._counted(parameter):
            self._ready(parameter)

    def _ready(self, parameter: torch.Tensor) -> None:
        """Its gradient is complete: submits it, with others."""
        self._handles[parameter] = None
        group = self._groups.get(parameter)
        if group is not None:
            if all(it in self._handles for it in group):
                self._launch(group, grouped=True)
            return
        self._waiting.append(parameter)
        self._waiting_bytes += parameter.numel() * parameter.element_size()
        if self._waiting_bytes >= PACK_BYTES or len(self._handles) == len(self._requires_update):
            self._launch_waiting()

    def _launch_waiting(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if waiting:
            self._launch(waiting, grouped=False)

    def _launch(self, parameters: list[torch.Tensor], grouped: bool) -> None:
        """Begins the reduction of their gradients; a parameter without one takes part with
        zeros.
        """
        dense: dict[torch.device, list[torch.Tensor]] = defaultdict(list)
        for it in parameters:
            if it.grad is None:
                it.grad = _zero(it, it in self._sparse and not self.sparse_as_dense)
            if it.grad.is_sparse:
                self._sparse.add(it)
                if not self.sparse_as_dense:
                    self._launch_sparse(it)
                    continue
            dense[it.grad.device].append(it)
        for some in dense.values():
            self._launch_dense(some, grouped)

    def _launch_sparse(self, parameter: torch.Tensor) -> None:
        batch = _Batch()
        name = f"allreduce.{self._parameter_names[parameter]}"
        batch.pending = _Call(
            sparse_allreduce_async(parameter.grad, name=name, op=self.op, process_set=self.process_set)
        )
        batch.gradients.append((parameter, None, None))
        self._handles[parameter] = batch

    def _launch_dense(self, parameters: list[torch.Tensor], grouped: bool) -> None:
        batch = _Batch()
        for it in parameters:
            small, ctx = self._compression.compress(it.grad.to_dense() if it.grad.is_sparse else it.grad)
            batch.gradients.append((it, small.contiguous(), ctx))
        tensors = [small for _, small, _ in batch.gradients]
        factor = self.gradient_predivide_factor
        batch.pending = reduce(
            "allreduce",
            tensors,
            tensors,
            [f"allreduce.{self._parameter_names[it]}" for it in parameters],
            self.op,
            1.0 / factor,
            factor,
            self.process_set,
            finish=lambda _: None,
            grouped=grouped and len(tensors) > 1,
        )
        for it in parameters:
            self._handles[it] = batch

    def synchronize(self) -> None:
        """Waits until all gradients are reduced. Parameters that this rank's passes did not use
        take part with zeros.
        """
        if self._simulation is None:
            self._synchronize()
        else:
            self._simulation.complete()

    def _synchronize(self) -> None:
        if self._requires_update:
            for it in self._requires_update:
                if it not in self._handles:
                    self._ready(it)
            self._launch_waiting()
            self._finish()
            for it in self._requires_update:
                self._allreduce_delay[it] = self.backward_passes_per_step
        self._synchronized = True

    def _finish(self) -> None:
        """Waits for a submitted batch, and stores the reduced gradients."""
        handles, self._handles = self._handles, {}
        self._waiting, self._waiting_bytes = [], 0
        failed = None
        for batch in {id(it): it for it in handles.values() if it is not None}.values():
            try:
                result = batch.pending.wait()
            except Exception as error:  # the others are waited for all the same: their memory is in use
                failed = failed or error
                continue
            with torch.no_grad():
                for parameter, small, ctx in batch.gradients:
                    if small is None:
                        parameter.grad = result
                    else:
                        self._put(parameter, self._compression.decompress(small, ctx))
        if failed is not None:
            raise failed

    def _put(self, parameter: torch.Tensor, reduced: torch.Tensor) -> None:
        if parameter.grad.is_sparse:
            parameter.grad = reduced.to_sparse(parameter.grad.sparse_dim())
        elif reduced.data_ptr() != parameter.grad.data_ptr() or reduced.dtype is not parameter.grad.dtype:
            parameter.grad.copy_(reduced)

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it, `step()` does not synchronise, which the program has done by
        `synchronize()`.
        """
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure=None):
        """One step on the reduced gradients; those of a `closure` are reduced each time that it
        is called.
        """
        if self._simulation is not None or not self._should_synchronize:
            self._synchronized = False
            return super().step(closure) if closure is not None else super().step()
        if closure is not None:

            def reduced():
                loss = closure()
                self.synchronize()
                return loss

            loss = super().step(reduced)
            self._synchronized = False
            return loss
        if self._synchronized:
            warnings.warn(TWICE, stacklevel=2)
        self.synchronize()
        self._synchronized = False
        return super().step()

    def zero_grad(self, *args, **kwargs):
        """Clears gradients; AssertionError between a step's first backward pass and the
        reduction's end.
        """
        # A simulated step's passes are no steps of the script's: it clears before each.
        if self._handles or (self._simulation is None and self._is_counting()):
            raise AssertionError(RACE)
        return super().zero_grad(*args, **kwargs)


def _checked(groups) -> int | list:
    """A number of groups, or groups of parameters, each of which is in one; `ValueError` for
    anything else.
    """
    if groups is None or (isinstance(groups, int) and not isinstance(groups, bool) and groups >= 0):
        return groups or 0
    if not isinstance(groups, (list, tuple)) or not all(isinstance(it, (list, tuple)) for it in groups):
        raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor.")
    seen = set()
    for it in (it for group in groups for it in group):
        if not isinstance(it, torch.Tensor):
            raise ValueError("groups must consist of torch.Tensor.")
        if it in seen:
            raise ValueError("A parameter can only appear once in groups.")
        seen.add(it)
    return list(groups)


class _Call:
    """A callable that waits, as a pending operation."""

    __slots__ = ("wait",)

    def __init__(self, wait):
        self.wait = wait


def _zero(parameter: torch.Tensor, sparse: bool) -> torch.Tensor:
    if not sparse:
        return torch.zeros_like(parameter, requires_grad=False)
    indices = torch.empty((1, 0), dtype=torch.int64, device=parameter.device)
    return torch.sparse_coo_tensor(indices, parameter.detach().new_empty((0, *parameter.shape[1:])), parameter.shape)


def _made(optimizer: torch.optim.Optimizer, mixin: type) -> torch.optim.Optimizer:
    """An optimizer of a new class, named like the given one's and made of it, for the same
    parameters and options, without its state.
    """
    kind = type(optimizer)
    made = type(kind.__name__, (mixin, kind), {"__doc__": kind.__doc__})
    accepted = inspect.signature(kind.__init__).parameters
    options = {name: value for name, value in optimizer.defaults.items() if name in accepted}
    distributed = made.__new__(made)
    try:
        kind.__init__(distributed, optimizer.param_groups, **options)
    except TypeError:
        # Its class wants more than its options tell: what it was made with is kept.
        distributed.__dict__.update(optimizer.__dict__)
        distributed.state = defaultdict(dict)
        distributed.param_groups = list(optimizer.param_groups)
    return distributed


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: torch.optim.Optimizer,
    named_parameters=None,
    compression=Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups=None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> torch.optim.Optimizer:
    """An optimizer of the given one's class for the same parameters, whose `step()` is on gradients
    reduced over all ranks of the set. State is made anew: load checkpoints afterwards.

    named_parameters: as `model.named_parameters()`. compression: `Compression.none` or `.fp16`.
    backward_passes_per_step: gradients of so many passes are summed before they are reduced. op:
    Average, Sum, Adasum (combines the changes of local steps), Min, Max, Product.
    gradient_predivide_factor f (Average only): gradients are divided by f before the sum, and
    multiplied by f / size afterwards. groups: a number of groups, or lists of parameters, whose
    gradients are reduced all or none; num_groups is its older name. sparse_as_dense: reduces sparse
    gradients as dense ones.
    """
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(
            f"DistributedOptimizer: the optimizer is a {type(optimizer).__name__}; give a torch.optim.Optimizer"
        )
    if not callable(getattr(compression, "compress", None)):
        raise TypeError(
            f"DistributedOptimizer: compression is {compression!r}; give hvd.Compression.none or hvd.Compression.fp16"
        )
    reduction(op, "DistributedOptimizer")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups` and will be removed.",
            DeprecationWarning,
            stacklevel=2,
        )
        groups = num_groups if groups is None else groups
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if op == Adasum and process_set != global_process_set:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    if op == Adasum and size() > 1:
        # It combines the steps of the ranks that exist.
        simulation.refuse("DistributedOptimizer with op=Adasum", "op=hvd.Average")
        distributed = _made(optimizer, _DistributedAdasumOptimizer)
        distributed._distribute(named_parameters, compression, backward_passes_per_step)
        return distributed
    distributed = _made(optimizer, _DistributedOptimizer)
    distributed._distribute(
        named_parameters,
        compression,
        backward_passes_per_step,
        Average if op == Adasum else op,
        gradient_predivide_factor,
        groups,
        sparse_as_dense,
        process_set,
    )
    _simulate(distributed)
    return distributed


def _simulate(distributed: torch.optim.Optimizer) -> None:
    """Large batch simulation (`shoal.torch.simulate`), where the job asks for it: a step then
    accumulates the passes that more ranks would run at once.
    """
    if not simulation.is_requested():
        return
    from shoal.torch import simulate

    # Each simulated instance has as many ranks as this one.
    os.environ.setdefault("LOCAL_WORLD_SIZE", str(local_size()))

    def reduced(passes) -> None:
        distributed._synchronize()
        gradients = [it.grad for group in distributed.param_groups for it in group["params"] if it.grad is not None]
        if gradients:
            torch._foreach_mul_(gradients, passes.factor)

    passes = simulate.adopt(distributed, rank(), size(), reduced, lambda number: allreduce_(number, op=Max))
    if passes is not None:
        distributed._simulation = passes
        distributed.set_backward_passes_per_step(distributed.backward_passes_per_step * passes.count)
