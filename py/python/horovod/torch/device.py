"""Operations on tensors that the engine's memory operations do not reach: those on GPUs.

Names are negotiated by the engine as all others; then PyTorch's own process group for the device
(NCCL) does the work, in the order that all ranks have agreed on, on a stream of its own. Where
ranks share a GPU, which NCCL refuses, or where there is no NCCL, tensors go through host memory.
HOROVOD_GPU_OPERATIONS=HOST asks for that.
"""

import json
import os
import socket
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from shoal.comm import CommError
from shoal.named import DuplicateName

from horovod.common import engine
from horovod.common.process_sets import ProcessSet, global_process_set, identity, members
from horovod.torch import streams
from horovod.torch.handles import Pending
from horovod.torch.submission import DTYPES, allocated_output, descriptor, own_rows, rank_in, submit

#: Makes a process group of a store, this rank's number and the number of ranks; None where tensors
#: go through host memory.
_make: Callable[[dist.Store, int, int], dist.ProcessGroup] | None = None
_store: dist.Store | None = None
_groups: dict[int, dist.ProcessGroup] = {}
#: Each rank's host, for Adasum.
_hosts: list[str] = []
_found = 0


def _nccl(store: dist.Store, rank: int, size: int) -> dist.ProcessGroup:
    options = dist.ProcessGroupNCCL.Options()
    return dist.ProcessGroupNCCL(store, rank, size, options)


def _own_gpu() -> str:
    """This rank's GPU as scripts choose it: that of its number on the host, or the only one that
    it sees. Empty without one.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    local = engine.current().local_rank
    index = local if local < count else 0 if count == 1 else None
    return "" if index is None else str(getattr(torch.cuda.get_device_properties(index), "uuid", f"number {index}"))


def find() -> None:
    """Finds out, together with the other ranks, how tensors on GPUs go: NCCL if each rank has a
    GPU of its own.
    """
    global _found, _hosts
    it = engine.current()
    if _found == engine.generation:
        return
    _found = engine.generation
    from horovod.torch.functions import allgather_object

    nccl = torch.cuda.is_available() and dist.is_available() and dist.is_nccl_available()
    wanted = os.environ.get("HOROVOD_GPU_OPERATIONS", "NCCL").upper() == "NCCL"
    mine = (socket.gethostname(), it.cross_rank, _own_gpu() if nccl and wanted else "")
    all_ranks = allgather_object(mine, "horovod.torch.devices") if it.size > 1 else [mine]
    _hosts = [f"{name} {number}" for name, number, _ in all_ranks]
    if all(gpu for _, _, gpu in all_ranks) and len(set(all_ranks)) == it.size:
        use(_nccl)


def use(make: Callable[[dist.Store, int, int], dist.ProcessGroup]) -> None:
    """Lets process groups made by this do the work; all ranks call it. It is how tests try
    another than NCCL.
    """
    global _make, _store
    from horovod.torch.functions import broadcast_object

    it = engine.current()
    _groups.clear()
    where = None
    if it.rank == 0:
        host = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR") or os.environ.get("MASTER_ADDR") or socket.gethostname()
        host = "127.0.0.1" if it.cross_size == 1 else host
        _store = dist.TCPStore(host, 0, it.size, is_master=True, wait_for_workers=False, timeout=timedelta(minutes=5))
        where = host, _store.port
    host, port = broadcast_object(where, 0, "horovod.torch.store")
    if it.rank != 0:
        _store = dist.TCPStore(
            host, port, it.size, is_master=False, wait_for_workers=False, timeout=timedelta(minutes=5)
        )
    _make = make
    it.on_joined(_beside)


def forget() -> None:
    """All groups are gone with the engine."""
    global _make, _store, _found
    _groups.clear()
    _make, _store, _found = None, None, 0


def _group(process_set: ProcessSet) -> dist.ProcessGroup:
    number = process_set.process_set_id
    if number not in _groups:
        _groups[number] = _make(
            dist.PrefixStore(f"set {number}", _store), rank_in(process_set), len(members(process_set))
        )
    return _groups[number]


def _external(
    name: str,
    what: dict,
    work: Callable[[], object],
    like: torch.Tensor,
    keep: object,
    process_set: ProcessSet,
    finish: Callable,
    joined=False,
) -> Pending:
    """Begins an operation of the device's process group: `work` gives its outputs, `finish`
    makes the caller's of them.
    """
    side = streams.of(like)
    result: list = []

    def run() -> None:
        with side:
            result.append(work())

    try:
        native = engine.current().submit_external(name, json.dumps(what), run, set=identity(process_set), joined=joined)
    except DuplicateName as error:
        raise ValueError(str(error)) from error
    except CommError as error:
        raise engine.failed(error) from error

    def finished(_):
        found = result[0] if isinstance(result[0], (list, tuple)) else ()
        side.join(it for it in found if isinstance(it, torch.Tensor))
        return finish(result[0])

    return Pending(native, finished, keep)


def _what(kind: str, tensors: list[torch.Tensor], process_set: ProcessSet, **more) -> dict:
    """What ranks have to agree on."""
    shapes = [list(it.shape) for it in tensors]
    return {
        "kind": kind,
        "device": tensors[0].device.type,
        "types": [DTYPES[it.dtype] for it in tensors],
        "shapes": shapes,
        "set": process_set.process_set_id,
        **more,
    }


_OPS = {"min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX, "product": dist.ReduceOp.PRODUCT}


def _scale(tensor: torch.Tensor, factor: float) -> None:
    """In place; integers are multiplied as doubles and cut off."""
    if factor != 1.0:
        if tensor.dtype.is_floating_point:
            tensor.mul_(factor)
        else:
            tensor.copy_(tensor.double().mul_(factor).trunc_())


def _all_reduce(group: dist.ProcessGroup, flat: torch.Tensor, op: str, prescale: float, postscale: float) -> None:
    """The reduction of one flat tensor, in place."""
    _scale(flat, prescale)
    if op == "adasum":
        every = [torch.empty_like(flat) for _ in range(group.size())]
        group.allgather([every], [flat]).wait()
        flat.copy_(adasum(every, _hosts))
    else:
        options = dist.AllreduceOptions()
        options.reduceOp = _OPS.get(op, dist.ReduceOp.SUM)
        group.allreduce([flat], options).wait()
        if op == "average":
            if flat.dtype.is_floating_point:
                flat.div_(group.size())
            else:
                flat.copy_(flat.div(group.size(), rounding_mode="trunc"))
    _scale(flat, postscale)


def adasum(vectors: list[torch.Tensor], hosts: list[str]) -> torch.Tensor:
    """Adasum of all ranks' vectors: averages within hosts, then pairs of hosts in a binary tree
    (Maleki et al., 2020, algorithm 1).
    """
    by_host: dict[str, list[torch.Tensor]] = {}
    for vector, host in zip(vectors, hosts, strict=True):
        by_host.setdefault(host, []).append(vector.double())
    level = [torch.stack(some).mean(0) for some in by_host.values()]
    if len(level) & (len(level) - 1):
        raise NotImplementedError(
            f"Running GPU Adasum with non-power of 2 nodes is not supported yet: there are {len(level)}."
        )
    while len(level) > 1:
        level = [_pair(one, other) for one, other in zip(level[::2], level[1::2], strict=True)]
    return level[0].to(vectors[0].dtype)


def _pair(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    dot, first, second = one.mul(other).sum(), one.square().sum(), other.square().sum()
    zero = torch.zeros_like(dot)
    of_one = 1 - torch.where(first > 0, dot / (2 * first), zero)
    return one * of_one + other * (1 - torch.where(second > 0, dot / (2 * second), zero))


def reduce(kind, tensors, outputs, each, op, prescale, postscale, process_set, finish, grouped) -> Pending:
    """As `reductions.reduce`, of tensors on devices; those of a list are one operation."""
    if _make is None:
        return _staged_reduce(kind, tensors, outputs, each, op, prescale, postscale, process_set, finish, grouped)
    what = _what(kind, tensors, process_set, op=op, prescale=prescale, postscale=postscale)

    def work():
        return _reduced(kind, tensors, outputs, op, prescale, postscale, process_set)

    return _external(
        each[0], what, work, tensors[0], (tensors, outputs), process_set, finish, joined=kind == "allreduce"
    )


def _reduced(kind, tensors, outputs, op, prescale, postscale, process_set) -> None:
    group = _group(process_set)
    for dtype in dict.fromkeys(it.dtype for it in tensors):
        some = [number for number, it in enumerate(tensors) if it.dtype is dtype]
        # Adasum is of each tensor by itself; others are one message.
        for part in [[number] for number in some] if op == "adasum" else [some]:
            flat = torch.cat([tensors[number].detach().reshape(-1) for number in part])
            _all_reduce(group, flat, op, prescale, postscale)
            for number, piece in zip(part, flat.split([tensors[number].numel() for number in part]), strict=True):
                whole = piece.view(tensors[number].shape)
                outputs[number].detach().copy_(_rows(whole, process_set) if kind == "reducescatter" else whole)


def _rows(whole: torch.Tensor, process_set: ProcessSet) -> torch.Tensor:
    """This rank's part of a reduction. NCCL scatters equal parts only, so all have got the
    whole.
    """
    rows, ranks, own = whole.shape[0], len(members(process_set)), rank_in(process_set)
    return whole.narrow(0, own * (rows // ranks) + min(own, rows % ranks), own_rows(rows, process_set))


def _beside(_: str, signature: str) -> None:
    """The part of a joined rank in the others' all-reduce: zeros."""
    what = json.loads(signature)
    if what.get("set") != 0 or what.get("kind") != "allreduce":
        return
    types = {word: dtype for dtype, word in DTYPES.items()}
    own = (
        torch.device("cuda", torch.cuda.current_device()) if what["device"] == "cuda" else torch.device(what["device"])
    )
    zeros = [
        torch.zeros(shape, dtype=types[word], device=own)
        for shape, word in zip(what["shapes"], what["types"], strict=True)
    ]
    with streams.of(zeros[0]):
        _reduced("allreduce", zeros, zeros, what["op"], what["prescale"], what["postscale"], global_process_set)


def _counts(group: dist.ProcessGroup, own: list[int], like: torch.Tensor) -> list[list[int]]:
    """What each rank says of itself."""
    mine = torch.tensor(own, dtype=torch.int64, device=like.device)
    every = [torch.empty_like(mine) for _ in range(group.size())]
    group.allgather([every], [mine]).wait()
    return [it.tolist() for it in every]


def gather(tensors, each, process_set, grouped) -> Pending:
    """As `gathers.allgather`, of tensors on devices."""
    finish = (lambda found: found) if grouped else (lambda found: found[0])
    if _make is None:
        held = [it.detach().cpu() for it in tensors]
        given = [descriptor(one, it, None) for one, it in zip(each, held, strict=True)]

        def back(native):
            return finish(
                [allocated_output(native, number, it).to(tensors[0].device) for number, it in enumerate(held)]
            )

        return submit("allgather", given, back, held, process_set, grouped=grouped)

    def work():
        group = _group(process_set)
        rows = _counts(group, [it.shape[0] for it in tensors], tensors[0])
        found = []
        for number, it in enumerate(tensors):
            counts = [of_rank[number] for of_rank in rows]
            # NCCL gathers equal pieces: shorter ones are filled up.
            padded = it.new_zeros((max(counts), *it.shape[1:]), requires_grad=False)
            padded[: it.shape[0]].copy_(it.detach())
            every = [torch.empty_like(padded) for _ in counts]
            group.allgather([every], [padded]).wait()
            found.append(torch.cat([piece[:count] for piece, count in zip(every, counts, strict=True)]))
        return found

    what = _what("allgather", tensors, process_set)
    what["shapes"] = [shape[1:] for shape in what["shapes"]]
    return _external(each[0], what, work, tensors[0], tensors, process_set, finish)


def broadcast(outputs, each, root_rank, process_set, finish, grouped) -> Pending:
    """As `gathers.start_broadcast`, of tensors on devices."""
    if _make is None:
        held = [it.detach().cpu() for it in outputs]
        given = [descriptor(called, it, it) for called, it in zip(each, held, strict=True)]
        return submit(
            "broadcast",
            given,
            lambda _: _copied(outputs, held, finish),
            held,
            process_set,
            root=root_rank,
            grouped=grouped,
        )

    def work():
        options = dist.BroadcastOptions()
        options.rootRank = members(process_set).index(root_rank)
        for it in outputs:
            _group(process_set).broadcast([it.detach()], options).wait()

    return _external(
        each[0],
        _what("broadcast", outputs, process_set, root=root_rank),
        work,
        outputs[0],
        outputs,
        process_set,
        finish,
    )


def alltoall(tensor, rows, name, process_set, both) -> Pending:
    """As `gathers.alltoall`, of a tensor on a device."""
    if _make is None:
        held = tensor.detach().cpu()

        def back(native):
            return both(allocated_output(native, 0, held).to(tensor.device), native.received_splits())

        return submit("alltoall", [descriptor(name, held, None)], back, held, process_set, splits=rows)
    count = len(members(process_set))
    given = rows or [tensor.shape[0] // count] * count

    def work():
        group = _group(process_set)
        received = [of_rank[rank_in(process_set)] for of_rank in _counts(group, given, tensor)]
        output = tensor.new_empty((sum(received), *tensor.shape[1:]), requires_grad=False)
        group.alltoall_base(output, tensor.detach(), received, given).wait()
        return output, received

    what = _what("alltoall", [tensor], process_set)
    what["shapes"] = [shape[1:] for shape in what["shapes"]]
    return _external(name, what, work, tensor, tensor, process_set, lambda found: both(*found))


def _copied(outputs, held, finish):
    with torch.no_grad():
        for it, value in zip(outputs, held, strict=True):
            it.copy_(value)
    return finish(None)


def _staged_reduce(kind, tensors, outputs, each, op, prescale, postscale, process_set, finish, grouped) -> Pending:
    held = [it.detach().cpu() for it in tensors]
    if op != "adasum":
        results = [torch.empty(it.shape, dtype=it.dtype) for it in outputs]
        given = [descriptor(*one) for one in zip(each, held, results, strict=True)]
        done = lambda _: _copied(outputs, results, finish)  # noqa: E731 (one of two forms)
        return submit(
            kind,
            given,
            done,
            (held, results),
            process_set,
            op=op,
            prescale=prescale,
            postscale=postscale,
            grouped=grouped,
        )
    # Adasum of GPUs averages within hosts, which the engine's does not.
    count = len(members(process_set))

    def done(native):
        results = []
        for number, it in enumerate(held):
            every = allocated_output(native, number, it).view(count, -1).mul(prescale).unbind()
            results.append(adasum(list(every), _hosts).mul_(postscale).view(it.shape))
        return _copied(outputs, results, finish)

    given = [descriptor(one, it.view(1, -1), None) for one, it in zip(each, held, strict=True)]
    return submit("allgather", given, done, held, process_set, grouped=grouped)
