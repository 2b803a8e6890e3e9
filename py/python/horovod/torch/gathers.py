"""All-gather, broadcast and all-to-all."""

from collections.abc import Sequence

import torch

from horovod.common import engine
from horovod.common.process_sets import ProcessSet, global_process_set, members
from horovod.common.world import Average
from horovod.torch import device, handles
from horovod.torch.handles import Pending
from horovod.torch.submission import allocated_output, check, descriptor, names, on_host, rank_in, submit


def _gather(
    tensors: list[torch.Tensor], name: str | None, process_set: ProcessSet, *, grouped: bool = False, wait: bool = False
) -> Pending:
    what = "grouped_allgather" if grouped else "allgather"
    if not tensors:
        raise ValueError(f"{what}: the list of tensors is empty; give at least one")
    for tensor in tensors:
        check(tensor, what)
        if tensor.dim() == 0:
            raise IndexError(f"{what}: a scalar has no dimension to join along; give it one, as .reshape(1)")
    called = names(what, name, process_set)
    each = [f"{called}_{number + 1}of{len(tensors)}" for number in range(len(tensors))] if grouped else [called]
    if not on_host(tensors):
        return device.gather(tensors, each, process_set, grouped)

    def finish(native):
        found = [allocated_output(native, number, it) for number, it in enumerate(tensors)]
        return found if grouped else found[0]

    given = [descriptor(one, it, None) for one, it in zip(each, tensors, strict=True)]
    return submit("allgather", given, finish, tensors, process_set, grouped=grouped, wait=wait)


def allgather_async(tensor, name=None, process_set: ProcessSet = global_process_set) -> int:
    """Starts an all-gather along dimension 0, in which the ranks' tensors may differ. Returns a
    handle.
    """
    return handles.add(_gather([tensor], name, process_set))


def grouped_allgather_async(tensors, name=None, process_set: ProcessSet = global_process_set) -> int:
    """As `allgather_async`, of several tensors as one operation; the output is a list."""
    return handles.add(_gather(list(tensors), name, process_set, grouped=True))


def _own(grads: Sequence[torch.Tensor], rows: list[int], process_set: ProcessSet) -> list[torch.Tensor]:
    """This rank's rows of the gradients' averages."""
    from horovod.torch.reductions import grouped_allreduce

    averages = grouped_allreduce([it.contiguous() for it in grads], op=Average, process_set=process_set)
    all_rows = _gather([torch.tensor([rows], dtype=torch.int64)], None, process_set, wait=True).wait()
    at = all_rows[: rank_in(process_set)].sum(0).tolist()
    return [it.narrow(0, begin, count) for it, begin, count in zip(averages, at, rows, strict=True)]


class HorovodAllgather(torch.autograd.Function):
    """An all-gather whose gradient is this rank's rows of the average of the gradients."""

    @staticmethod
    def forward(ctx, tensor, name, process_set):
        """All rows."""
        ctx.how = [tensor.shape[0] if tensor.dim() else 0], process_set
        return _gather([tensor], name, process_set, wait=True).wait()

    @staticmethod
    def backward(ctx, grad_output):
        """This rank's."""
        return (*_own([grad_output], *ctx.how), None, None)


class HorovodGroupedAllgather(torch.autograd.Function):
    """A grouped all-gather."""

    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        """All rows."""
        ctx.how = [it.shape[0] if it.dim() else 0 for it in tensors], process_set
        return tuple(_gather(list(tensors), name, process_set, grouped=True, wait=True).wait())

    @staticmethod
    def backward(ctx, *grad_output):
        """This rank's."""
        return (None, None, *_own(grad_output, *ctx.how))


def allgather(tensor, name=None, process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """All ranks' tensors joined along dimension 0, which may differ; the other dimensions must
    not. Differentiable.
    """
    return HorovodAllgather.apply(tensor, name, process_set)


def grouped_allgather(tensors, name=None, process_set: ProcessSet = global_process_set) -> list[torch.Tensor]:
    """As `allgather`, of several tensors as one operation. Differentiable."""
    return list(HorovodGroupedAllgather.apply(name, process_set, *tensors))


def start_broadcast(
    outputs: list[torch.Tensor], each: list[str], root_rank: int, process_set: ProcessSet, *, grouped=False, wait=False
) -> Pending:
    """Starts a broadcast of root's tensors, in place."""
    for it, called in zip(outputs, each, strict=True):
        check(it, called)
    if root_rank not in members(process_set):
        raise ValueError(
            f"{each[0]}: root_rank is {root_rank}, a rank of the world, and not among the set's ranks {members(process_set)}"
        )
    finish = (lambda _: outputs) if grouped else (lambda _: outputs[0])
    if not on_host(outputs):
        return device.broadcast(outputs, each, root_rank, process_set, finish, grouped)
    given = [descriptor(called, it, it) for called, it in zip(each, outputs, strict=True)]
    return submit("broadcast", given, finish, outputs, process_set, root=root_rank, grouped=grouped, wait=wait)


def _broadcast(tensor, root_rank, name, process_set, *, in_place: bool, wait: bool = False) -> Pending:
    check(tensor, "broadcast")
    if in_place:
        output = tensor
    else:
        output = (
            tensor.detach().clone()
            if engine.current().rank == root_rank
            else torch.empty_like(tensor, requires_grad=False)
        )
    return start_broadcast([output], [names("broadcast", name, process_set)], root_rank, process_set, wait=wait)


def broadcast_async(tensor, root_rank, name=None, process_set: ProcessSet = global_process_set) -> int:
    """Starts a broadcast of the tensor of `root_rank`, a rank of the world also within a set.
    Returns a handle, whose output is a new tensor.
    """
    return handles.add(_broadcast(tensor, root_rank, name, process_set, in_place=False))


def broadcast_async_(tensor, root_rank, name=None, process_set: ProcessSet = global_process_set) -> int:
    """As `broadcast_async`, in place."""
    return handles.add(_broadcast(tensor, root_rank, name, process_set, in_place=True))


class HorovodBroadcast(torch.autograd.Function):
    """A broadcast whose gradient is the gradients' average at the root, and zero elsewhere."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        """Root's tensor."""
        ctx.how = root_rank, process_set
        return _broadcast(tensor, root_rank, name, process_set, in_place=False, wait=True).wait()

    @staticmethod
    def backward(ctx, grad_output):
        """The average, or zero."""
        from horovod.torch.reductions import allreduce

        root_rank, process_set = ctx.how
        grad = allreduce(grad_output.contiguous(), op=Average, process_set=process_set)
        return grad if engine.current().rank == root_rank else grad.zero_(), None, None, None


def broadcast(tensor, root_rank, name=None, process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The tensor of rank `root_rank` (of the world, also within a set), a new tensor.
    Differentiable.
    """
    return HorovodBroadcast.apply(tensor, root_rank, name, process_set)


def broadcast_(tensor, root_rank, name=None, process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """As `broadcast`, in place and not differentiable."""
    return _broadcast(tensor, root_rank, name, process_set, in_place=True, wait=True).wait()


def _splits(splits, tensor: torch.Tensor, process_set: ProcessSet) -> list[int] | None:
    """The checked numbers of rows for each rank; None for equal parts."""
    count, rows = len(members(process_set)), tensor.shape[0]
    if splits is None:
        if rows % count:
            raise ValueError(
                f"alltoall: tensor has {rows} rows, which is not divisible by the number of ranks, {count}; give splits"
            )
        return None
    if isinstance(splits, torch.Tensor):
        if splits.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"alltoall: alltoall expects a 32-bit integer tensor of splits, not {splits.dtype}")
        splits = splits.reshape(-1).tolist()
    found = [int(it) for it in splits]
    if len(found) != count or min(found) < 0:
        raise ValueError(
            f"alltoall: splits is {found}; it has a number of rows, at least 0, for each of the {count} ranks"
        )
    if sum(found) > rows:
        raise ValueError(
            f"alltoall: Sum of splits entries is greater than the first dimension of tensor: {found} for {rows} rows"
        )
    return found


def _alltoall(tensor, splits, name, process_set, wait: bool = False) -> Pending:
    check(tensor, "alltoall")
    if tensor.dim() == 0:
        raise ValueError("alltoall: a scalar has no rows to send; give it a dimension, as .reshape(1)")
    rows = _splits(splits, tensor, process_set)
    sent = tensor if rows is None else tensor.narrow(0, 0, sum(rows))
    called = names("alltoall", name, process_set)
    where = splits.device if isinstance(splits, torch.Tensor) else "cpu"

    def both(output: torch.Tensor, received: list[int]):
        return output if splits is None else (output, torch.tensor(received, dtype=torch.int32, device=where))

    if not on_host([sent]):
        return device.alltoall(sent, rows, called, process_set, both)

    def finish(native):
        return both(allocated_output(native, 0, tensor), native.received_splits())

    return submit("alltoall", [descriptor(called, sent, None)], finish, sent, process_set, splits=rows, wait=wait)


def alltoall_async(tensor, splits=None, name=None, process_set: ProcessSet = global_process_set) -> int:
    """Starts an all-to-all: `splits` (32-bit integers) has the number of rows for each rank,
    equal parts without. Returns a handle.
    """
    return handles.add(_alltoall(tensor, splits, name, process_set))


class HorovodAlltoall(torch.autograd.Function):
    """An all-to-all whose gradient is the reverse all-to-all."""

    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        """Rows from each rank, and how many."""
        ctx.process_set = process_set
        ctx.rows = tensor.shape[0] if tensor.dim() else 0
        counts = splits
        if counts is None and tensor.dim():
            _splits(None, tensor, process_set)
            count = len(members(process_set))
            counts = [tensor.shape[0] // count] * count
        output, received = _alltoall(tensor, counts, name, process_set, wait=True).wait()
        ctx.received = received.cpu()
        if splits is None:
            return output
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx, grad_output, *_):
        """The gradients of the rows that were sent."""
        grad, _ = _alltoall(grad_output.contiguous(), ctx.received, None, ctx.process_set, wait=True).wait()
        if grad.shape[0] < ctx.rows:
            grad = torch.cat([grad, grad.new_zeros(ctx.rows - grad.shape[0], *grad.shape[1:])])
        return grad, None, None, None


def alltoall(tensor, splits=None, name=None, process_set: ProcessSet = global_process_set):
    """Rows of all ranks for this one, in rank order: `splits` (32-bit integers) tells how many
    rows go to which rank, equal parts without. The tensor alone without splits, else (tensor,
    rows received from each rank). Differentiable.
    """
    return HorovodAlltoall.apply(tensor, splits, name, process_set)
