"""All-reduce, alone, grouped and of sparse tensors; reduce-scatter."""

from collections.abc import Callable, Sequence

import torch

from horovod.common import engine
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import get_average_backwards_compatibility_fun, num_rank_is_power_2
from horovod.common.world import Average, Sum, basics, reduction
from horovod.torch import device, handles
from horovod.torch.compression import Compression
from horovod.torch.gathers import allgather_async
from horovod.torch.handles import Pending, synchronize
from horovod.torch.submission import check, descriptor, names, on_host, own_rows, submit

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(basics)


def _can_adasum(process_set: ProcessSet) -> None:
    if process_set != global_process_set:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    if not num_rank_is_power_2(engine.current().size):
        raise NotImplementedError(
            f"Running Adasum with non-power of 2 ranks is not supported yet: there are {engine.current().size}."
        )


def reduce(
    kind: str,
    tensors: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    name: str | Sequence[str],
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    *,
    finish: Callable,
    grouped: bool = False,
    wait: bool = False,
) -> Pending:
    """Starts an all-reduce or reduce-scatter of tensors into outputs, which may be the same.
    `name`: one for all of them, or a list with one for each.
    """
    word = reduction(op, kind)
    if word == "adasum":
        _can_adasum(process_set)
    each = [name] if len(tensors) == 1 and isinstance(name, str) else name
    if isinstance(each, str):
        each = [f"{name}_{number + 1}of{len(tensors)}" for number in range(len(tensors))]
    for tensor, called in zip(tensors, each, strict=True):
        check(tensor, called)
    if not on_host(tensors):
        return device.reduce(kind, tensors, outputs, each, word, prescale, postscale, process_set, finish, grouped)
    given = [descriptor(*one) for one in zip(each, tensors, outputs, strict=True)]
    keep = (tensors, outputs)
    return submit(
        kind,
        given,
        finish,
        keep,
        process_set,
        op=word,
        prescale=prescale,
        postscale=postscale,
        grouped=grouped,
        wait=wait,
    )


def _one(tensor, output, name, op, prescale_factor, postscale_factor, process_set, wait=False) -> Pending:
    called = names("allreduce", name, process_set)
    return reduce(
        "allreduce",
        [tensor],
        [output],
        called,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        finish=lambda _: output,
        wait=wait,
    )


def _several(tensors, outputs, name, op, prescale_factor, postscale_factor, process_set, wait=False) -> Pending:
    if not tensors:
        raise ValueError("grouped_allreduce: the list of tensors is empty; give at least one")
    called = names("grouped_allreduce", name, process_set)
    return reduce(
        "allreduce",
        tensors,
        outputs,
        called,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        finish=lambda _: outputs,
        grouped=True,
        wait=wait,
    )


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def allreduce_async(
    tensor,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts the reduction of a tensor over all ranks of the set. Returns a handle, whose output
    is a new tensor. `op` defaults to Average; `prescale_factor` multiplies before,
    `postscale_factor` afterwards.
    """
    op = handle_average_backwards_compatibility(op, average)
    check(tensor, "allreduce")
    return handles.add(_one(tensor, _like(tensor), name, op, prescale_factor, postscale_factor, process_set))


def allreduce_async_(
    tensor,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """As `allreduce_async`, in place."""
    op = handle_average_backwards_compatibility(op, average)
    return handles.add(_one(tensor, tensor, name, op, prescale_factor, postscale_factor, process_set))


class HorovodAllreduce(torch.autograd.Function):
    """An all-reduce whose gradient is the same reduction of the gradients."""

    @staticmethod
    def forward(ctx, tensor, average, name, op, prescale_factor, postscale_factor, process_set):
        """The reduction."""
        ctx.how = average, op, prescale_factor, postscale_factor, process_set
        op = handle_average_backwards_compatibility(op, average)
        check(tensor, "allreduce")
        return _one(tensor, _like(tensor), name, op, prescale_factor, postscale_factor, process_set, wait=True).wait()

    @staticmethod
    def backward(ctx, grad_output):
        """The reduction of the gradients."""
        average, op, prescale_factor, postscale_factor, process_set = ctx.how
        grad = allreduce(
            grad_output.contiguous(),
            average=average,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
        )
        return grad, None, None, None, None, None, None


def allreduce(
    tensor,
    average=None,
    name=None,
    compression=Compression.none,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The reduction of a tensor over all ranks of the set, a new tensor. Differentiable:
    gradients are reduced in the same way.
    """
    op = handle_average_backwards_compatibility(op, average)
    small, ctx = compression.compress(tensor)
    return compression.decompress(
        HorovodAllreduce.apply(small, None, name, op, prescale_factor, postscale_factor, process_set), ctx
    )


def allreduce_(
    tensor,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """As `allreduce`, in place and not differentiable."""
    op = handle_average_backwards_compatibility(op, average)
    return _one(tensor, tensor, name, op, prescale_factor, postscale_factor, process_set, wait=True).wait()


def grouped_allreduce_async(
    tensors,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts the reduction of several tensors as one operation, all or none. Returns a handle,
    whose output is a list of new tensors.
    """
    op = handle_average_backwards_compatibility(op, average)
    tensors = list(tensors)
    for tensor in tensors:
        check(tensor, "grouped_allreduce")
    return handles.add(
        _several(tensors, [_like(it) for it in tensors], name, op, prescale_factor, postscale_factor, process_set)
    )


def grouped_allreduce_async_(
    tensors,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """As `grouped_allreduce_async`, in place."""
    op = handle_average_backwards_compatibility(op, average)
    tensors = list(tensors)
    return handles.add(_several(tensors, tensors, name, op, prescale_factor, postscale_factor, process_set))


class HorovodGroupedAllreduce(torch.autograd.Function):
    """A grouped all-reduce whose gradients are reduced as a group."""

    @staticmethod
    def forward(ctx, average, name, op, prescale_factor, postscale_factor, process_set, *tensors):
        """The reductions."""
        ctx.how = average, op, prescale_factor, postscale_factor, process_set
        handle = grouped_allreduce_async(tensors, average, name, op, prescale_factor, postscale_factor, process_set)
        return tuple(synchronize(handle))

    @staticmethod
    def backward(ctx, *grad_output):
        """The reductions of the gradients."""
        average, op, prescale_factor, postscale_factor, process_set = ctx.how
        grads = grouped_allreduce(
            [it.contiguous() for it in grad_output],
            average=average,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
        )
        return (None, None, None, None, None, None, *grads)


def grouped_allreduce(
    tensors,
    average=None,
    name=None,
    compression=Compression.none,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """The reductions of several tensors as one operation, new tensors. Differentiable."""
    op = handle_average_backwards_compatibility(op, average)
    small = [compression.compress(it) for it in tensors]
    reduced = HorovodGroupedAllreduce.apply(
        None, name, op, prescale_factor, postscale_factor, process_set, *(it for it, _ in small)
    )
    return [compression.decompress(it, ctx) for it, (_, ctx) in zip(reduced, small, strict=True)]


def grouped_allreduce_(
    tensors,
    average=None,
    name=None,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """As `grouped_allreduce`, in place and not differentiable."""
    op = handle_average_backwards_compatibility(op, average)
    tensors = list(tensors)
    return _several(tensors, tensors, name, op, prescale_factor, postscale_factor, process_set, wait=True).wait()


def sparse_allreduce_async(
    tensor, name, op, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Starts the sum (`op` Sum) or average of a sparse tensor, by gathering all ranks' indices
    and values. Returns a callable that waits and returns the sparse tensor.
    """
    if op not in (Average, Sum):
        raise ValueError(
            f"sparse_allreduce_async: op is {reduction(op, 'sparse_allreduce_async')}; sparse tensors have hvd.Average and hvd.Sum, use .to_dense() for others"
        )
    if not tensor.is_sparse:
        raise ValueError(
            f"sparse_allreduce_async: the tensor is of layout {tensor.layout}; use allreduce for dense tensors"
        )
    tensor = tensor.coalesce()
    # Transposed, so that the ranks' indices are joined along dimension 0.
    indices = allgather_async(tensor.indices().t().contiguous(), name=f"{name}.indices", process_set=process_set)
    values = allgather_async(tensor.values().contiguous(), name=f"{name}.values", process_set=process_set)

    def finish() -> torch.Tensor:
        where, what = synchronize(indices), synchronize(values)
        if op == Average:
            what = what / process_set.size()
        return torch.sparse_coo_tensor(where.t(), what, tensor.size())

    return finish


def _scatter(tensors, name, op, process_set, prescale_factor, postscale_factor, grouped=False, wait=False) -> Pending:
    what = "grouped_reducescatter" if grouped else "reducescatter"
    if op not in (Average, Sum):
        raise HorovodInternalError(
            f"{what}: only hvd.Average and hvd.Sum are supported, not {reduction(op, what)}; use allreduce and keep your part."
        )
    if not tensors:
        raise ValueError(f"{what}: the list of tensors is empty; give at least one")
    for tensor in tensors:
        check(tensor, what)
        if tensor.dim() == 0:
            raise ValueError(f"{what}: a scalar has no rows to scatter; give it a dimension, as .reshape(1)")
    outputs = [it.new_empty((own_rows(it.shape[0], process_set), *it.shape[1:]), requires_grad=False) for it in tensors]
    called = names(what, name, process_set)
    finish = (lambda _: outputs) if grouped else (lambda _: outputs[0])
    return reduce(
        "reducescatter",
        tensors,
        outputs,
        called,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        finish=finish,
        grouped=grouped,
        wait=wait,
    )


def reducescatter_async(
    tensor,
    name=None,
    op=Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
) -> int:
    """Starts a reduce-scatter (Average or Sum): each rank gets an equal share of the reduced
    rows, the first (rows mod ranks) ranks one more. Returns a handle.
    """
    return handles.add(_scatter([tensor], name, op, process_set, prescale_factor, postscale_factor))


def grouped_reducescatter_async(
    tensors,
    name=None,
    op=Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
) -> int:
    """As `reducescatter_async`, of several tensors as one operation; the output is a list."""
    return handles.add(_scatter(list(tensors), name, op, process_set, prescale_factor, postscale_factor, grouped=True))


def _back(grads, op, process_set, prescale_factor, postscale_factor) -> list[torch.Tensor]:
    """Gradients of the rows that went to all ranks, for the tensors that were reduced: those of
    a sum are multiplied by the number of ranks, as Horovod does.
    """
    from horovod.torch.gathers import grouped_allgather

    scale = prescale_factor * postscale_factor * (process_set.size() if op == Sum else 1)
    return grouped_allgather(
        [it.contiguous() if scale == 1 else it.contiguous() * scale for it in grads], process_set=process_set
    )


class HorovodReducescatter(torch.autograd.Function):
    """A reduce-scatter whose gradient is gathered."""

    @staticmethod
    def forward(ctx, tensor, name, op, process_set, prescale_factor, postscale_factor):
        """The reduction's rows."""
        ctx.how = op, process_set, prescale_factor, postscale_factor
        return _scatter([tensor], name, op, process_set, prescale_factor, postscale_factor, wait=True).wait()

    @staticmethod
    def backward(ctx, grad_output):
        """All rows' gradients."""
        return (*_back([grad_output], *ctx.how), None, None, None, None, None)


class HorovodGroupedReducescatter(torch.autograd.Function):
    """A grouped reduce-scatter whose gradients are gathered."""

    @staticmethod
    def forward(ctx, name, op, process_set, prescale_factor, postscale_factor, *tensors):
        """The reductions' rows."""
        ctx.how = op, process_set, prescale_factor, postscale_factor
        return tuple(
            _scatter(
                list(tensors), name, op, process_set, prescale_factor, postscale_factor, grouped=True, wait=True
            ).wait()
        )

    @staticmethod
    def backward(ctx, *grad_output):
        """All rows' gradients."""
        return (None, None, None, None, None, *_back(grad_output, *ctx.how))


def reducescatter(
    tensor,
    name=None,
    compression=Compression.none,
    op=Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
) -> torch.Tensor:
    """This rank's rows of the reduction (Average or Sum). Differentiable."""
    small, ctx = compression.compress(tensor)
    return compression.decompress(
        HorovodReducescatter.apply(small, name, op, process_set, prescale_factor, postscale_factor), ctx
    )


def grouped_reducescatter(
    tensors,
    name=None,
    compression=Compression.none,
    op=Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
) -> list[torch.Tensor]:
    """This rank's rows of the reductions of several tensors as one operation. Differentiable."""
    small = [compression.compress(it) for it in tensors]
    reduced = HorovodGroupedReducescatter.apply(
        name, op, process_set, prescale_factor, postscale_factor, *(it for it, _ in small)
    )
    return [compression.decompress(it, ctx) for it, (_, ctx) in zip(reduced, small, strict=True)]
