"""Checks of `horovod.torch`'s operations, each done by all ranks."""

import json
import os
import random
import tempfile
import time
import warnings

import torch

import horovod.torch as hvd
from horovod_expect import raises

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def process(rank, size):
    assert hvd.is_initialized() and hvd.is_homogeneous()
    assert (hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()) == (rank, size, 0, 1)
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (rank, size)
    assert (
        hvd.gloo_built() and hvd.mpi_threads_supported() and not hvd.ccl_built() and isinstance(hvd.nccl_built(), int)
    )
    assert len({hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product}) == 6


def all_reduce(rank, size):
    total = size * (size + 1) // 2
    for dtype in (*FLOATS, *INTEGERS):
        mine = torch.arange(5, dtype=dtype).reshape(1, 5) * (rank + 1)
        assert torch.equal(hvd.allreduce(mine, op=hvd.Sum), torch.arange(5, dtype=dtype).reshape(1, 5) * total)
        kept = mine.clone()
        assert hvd.allreduce_(mine, op=hvd.Max, name="largest") is mine
        assert torch.equal(mine, kept // (rank + 1) * size if dtype in INTEGERS else kept / (rank + 1) * size)
        assert torch.equal(hvd.allreduce(kept, op=hvd.Min), torch.arange(5, dtype=dtype).reshape(1, 5))
    assert torch.equal(hvd.allreduce(torch.full((3,), 2.0), op=hvd.Product), torch.full((3,), 2.0**size))
    # Averages of integers are cut off.
    assert torch.equal(hvd.allreduce(torch.tensor([-3, 3]) * (rank == 0)), torch.tensor([-(3 // size), 3 // size]))
    assert hvd.allreduce(torch.tensor(float(rank))).item() == (size - 1) / 2
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert hvd.allreduce(torch.tensor(1.0), average=False).item() == size
    assert any("replaced with `op`" in str(it.message) for it in told)
    with raises(ValueError, match="supersedes average"):
        hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)
    assert torch.allclose(
        hvd.allreduce(torch.ones(4), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0),
        torch.full((4,), 1.5 * size),
    )
    assert hvd.allreduce(torch.tensor([7]), op=hvd.Sum, prescale_factor=0.5).item() == 3 * size
    assert hvd.allreduce(torch.full((3,), 1 / 3), compression=hvd.Compression.fp16, op=hvd.Sum).dtype is torch.float32
    assert hvd.allreduce(torch.empty(0)).shape == (0,)


def groups_and_handles(rank, size):
    tensors = [torch.full((number + 1,), float(rank)) for number in range(5)]
    mean = (size - 1) / 2
    assert all(torch.equal(it, torch.full_like(it, mean)) for it in hvd.grouped_allreduce(tensors, name="five"))
    handle = hvd.grouped_allreduce_async_(tensors, op=hvd.Sum)
    assert hvd.synchronize(handle) == tensors
    assert tensors[4][0] == mean * size
    with raises(ValueError, match="empty"):
        hvd.grouped_allreduce([])
    handles = [hvd.allreduce_async(torch.full((10,), float(number)), name=f"many.{number}") for number in range(50)]
    for number in reversed(range(50)):
        assert hvd.synchronize(handles[number])[0] == number
    assert hvd.synchronize(handles[0]) is None
    with raises(ValueError, match="cleared"):
        hvd.poll(handles[0])
    handle = hvd.broadcast_async(torch.ones(1), 0)
    until = time.monotonic() + 10
    while not hvd.poll(handle):
        assert time.monotonic() < until, "nobody does what was submitted"
        time.sleep(0.001)
    hvd.synchronize(handle)
    # Named operations may come in any order.
    order = [0, 1, 2] if rank % 2 else [2, 0, 1]
    handles = {number: hvd.allreduce_async(torch.tensor([float(number)]), name=f"order.{number}") for number in order}
    assert [hvd.synchronize(handles[number]).item() for number in range(3)] == [0, 1, 2]


def grouped_handles(rank, size):
    """Groups of gathers and scatters, started together and finished in another order."""
    mine, rows = torch.full((rank + 1, 2), rank), torch.arange(2.0 * size).reshape(2 * size, 1) * (rank + 1)
    gathered = hvd.grouped_allgather_async([mine, mine.double() * 2], name="joined")
    scattered = hvd.grouped_reducescatter_async([rows, rows + 1], name="shared", op=hvd.Sum, prescale_factor=2.0)
    total = torch.arange(2.0 * size).reshape(2 * size, 1) * (size * (size + 1) / 2)
    one, other = hvd.synchronize(scattered)
    assert torch.equal(one, 2 * total[2 * rank : 2 * rank + 2]) and torch.equal(other, one + 2 * size)
    ints, doubles = hvd.synchronize(gathered)
    assert ints.tolist() == [[it] * 2 for it in range(size) for _ in range(it + 1)] and ints.dtype is torch.int64
    assert torch.equal(doubles, ints.double() * 2)
    assert hvd.synchronize(gathered) is None
    with raises(ValueError, match="empty"):
        hvd.grouped_reducescatter_async([])
    with raises(hvd.HorovodInternalError, match="uneven group"):
        hvd.synchronize(hvd.grouped_reducescatter_async([torch.ones(size, 1 + (rank == 0))], name="uneven group"))


def timeline(rank, size):
    """Started and stopped while the program runs, where it was allowed; rank 0 has the file."""
    with raises(ValueError, match="HOROVOD_TIMELINE"):
        hvd.start_timeline("/nowhere")
    hvd.stop_timeline()
    os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
    try:
        with tempfile.TemporaryDirectory() as directory:
            for name in ("first", "second"):
                path = os.path.join(directory, f"{name}.json")
                hvd.start_timeline(path, mark_cycles=name == "second")
                hvd.barrier()
                hvd.allreduce(torch.ones(4), name=f"{name}.tensor")
                hvd.barrier()
                hvd.stop_timeline()
                hvd.allreduce(torch.ones(4), name=f"behind.{name}")
                hvd.barrier()
                assert os.path.exists(path) == (rank == 0)
                if rank == 0:
                    with open(path) as file:
                        events = json.load(file)
                    text = json.dumps(events)
                    assert f"{name}.tensor" in text and "behind" not in text and "NEGOTIATE_ALLREDUCE" in text, text
                    assert ("CYCLE_START" in text) == (name == "second"), text
            hvd.stop_timeline()
    finally:
        del os.environ["HOROVOD_TIMELINE"]


def gathers(rank, size):
    mine = torch.full((rank + 1, 2), rank)
    joined = hvd.allgather(mine)
    assert joined.tolist() == [[other] * 2 for other in range(size) for _ in range(other + 1)]
    assert torch.equal(
        hvd.allgather(mine[:0] if rank else mine, name="only rank 0"), torch.zeros(1, 2, dtype=torch.int64)
    )
    both = hvd.grouped_allgather([mine, mine.to(torch.bool)])
    assert torch.equal(both[0], joined) and torch.equal(both[1], joined.to(torch.bool))
    with raises(IndexError):
        hvd.allgather(torch.tensor(1.0))
    for root in range(size):
        assert hvd.broadcast(torch.tensor([rank, 7]), root).tolist() == [root, 7]
    own = torch.tensor(rank)
    assert hvd.broadcast_(own, size - 1) is own and own.item() == size - 1
    with raises(ValueError, match="root_rank"):
        hvd.broadcast(own, size)
    # Rank r sends s + 1 rows to rank s.
    rows = torch.repeat_interleave(torch.arange(size), torch.arange(1, size + 1)) + 10 * rank
    output, received = hvd.alltoall(rows, splits=torch.arange(1, size + 1, dtype=torch.int32))
    assert received.dtype is torch.int32 and received.tolist() == [rank + 1] * size
    assert output.tolist() == [rank + 10 * other for other in range(size) for _ in range(rank + 1)]
    assert hvd.alltoall(torch.arange(size) + 10 * rank).tolist() == [rank + 10 * other for other in range(size)]
    output, received = hvd.synchronize(hvd.alltoall_async(rows, [*range(1, size + 1)]))
    assert len(output) == size * (rank + 1)
    for wrong in ([1] * (size + 1), [100] * size, torch.ones(size)):
        with raises(ValueError):
            hvd.alltoall(rows, splits=wrong)
    with raises(ValueError, match="divisible"):
        hvd.alltoall(torch.ones(size + 1 if size > 1 else 0))


def scatters(rank, size):
    rows = 2 * size + 1
    mine = torch.arange(float(rows)).reshape(rows, 1) * (rank + 1)
    total = torch.arange(float(rows)).reshape(rows, 1) * (size * (size + 1) / 2)
    begin = 3 * rank if rank == 0 else 2 * rank + 1
    assert torch.equal(hvd.reducescatter(mine, op=hvd.Sum), total[begin : begin + 2 + (rank == 0)])
    assert torch.allclose(hvd.reducescatter(mine), total[begin : begin + 2 + (rank == 0)] / size)
    some = hvd.grouped_reducescatter([mine, 2 * mine], op=hvd.Sum)
    assert torch.equal(some[1], 2 * some[0])
    with raises(hvd.HorovodInternalError):
        hvd.reducescatter(mine, op=hvd.Adasum)
    with raises(ValueError):
        hvd.reducescatter(torch.tensor(1.0))


def gradients(rank, size):
    ones = torch.ones(4, requires_grad=True)
    hvd.allreduce(ones, op=hvd.Sum).backward(torch.full((4,), rank + 1.0))
    assert torch.equal(ones.grad, torch.full((4,), size * (size + 1) / 2))
    ones.grad = None
    # The gradient of a sum of an output is not contiguous.
    sum(hvd.grouped_allreduce([ones, ones * 2])).sum().backward()
    assert torch.equal(ones.grad, torch.full((4,), 3.0))
    mine = torch.ones(rank + 1, requires_grad=True)
    weights = torch.cat([torch.full((other + 1,), float(other)) for other in range(size)])
    (hvd.allgather(mine) * weights * (rank + 1)).sum().backward()
    assert torch.allclose(mine.grad, torch.full((rank + 1,), rank * (size + 1) / 2))
    ones.grad = None
    hvd.broadcast(ones, size - 1).sum().backward()
    assert torch.equal(ones.grad, torch.full((4,), float(rank == size - 1)))
    parts = torch.ones(2 * size, requires_grad=True)
    output, _ = hvd.alltoall(parts, splits=[2] * size)
    (output * (rank + 1)).sum().backward()
    assert torch.equal(parts.grad, torch.repeat_interleave(torch.arange(1.0, size + 1), 2))
    parts.grad = None
    hvd.reducescatter(parts, op=hvd.Sum).sum().backward()
    assert torch.equal(parts.grad, torch.full((2 * size,), float(size)))


def mistakes(rank, size):
    for one, other in (
        (torch.ones(3), torch.ones(4)),
        (torch.ones(4), torch.ones(2, 2)),
        (torch.ones(3), torch.ones(3, dtype=torch.int32)),
    ):
        with raises(hvd.HorovodInternalError, match="odd"):
            hvd.allreduce(one if rank == 0 else other, name="odd")
    with raises(hvd.HorovodInternalError, match="odd"):
        hvd.allreduce(torch.ones(1), name="odd", op=hvd.Sum if rank == 0 else hvd.Max)
    with raises(hvd.HorovodInternalError, match="odd"):
        hvd.broadcast(torch.ones(1), min(rank, 1), name="odd")
    with raises(hvd.HorovodInternalError):
        hvd.allgather(torch.ones(1, 2 + rank))
    with raises(ValueError, match="contiguous"):
        hvd.allreduce_(torch.ones(3, 2).t())
    with raises(ValueError, match="not supported"):
        hvd.allreduce(torch.ones(1, dtype=torch.complex64))
    # A name is taken until its operation is done.
    if rank == 0:
        first = hvd.allreduce_async(torch.ones(1), name="twice")
        with raises(ValueError, match="twice"):
            hvd.allreduce_async(torch.ones(1), name="twice")
    hvd.barrier()
    if rank != 0:
        first = hvd.allreduce_async(torch.ones(1), name="twice")
    assert hvd.synchronize(first).item() == 1
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size


def join(rank, size):
    for first in range(size):
        # Uneven data: one rank has less than the others. Unnamed operations go on afterwards.
        for _ in range(1 + (rank != first)):
            total = hvd.allreduce(torch.ones(3), op=hvd.Sum)
            mean = hvd.allreduce(torch.ones(3))
        last = hvd.join()
        assert last != first or size == 1
        assert hvd.allgather_object(last) == [last] * size
        if rank != first:
            assert total[0] == size - 1
            assert abs(mean[0] - (size - 1) / size) < 1e-6
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size
    if rank == 0:
        hvd.join()
    else:
        with raises(hvd.HorovodInternalError, match="[Jj]oin"):
            hvd.allgather(torch.ones(1), name="beside")
        hvd.join()


def process_sets(rank, size):
    with raises(ValueError, match="DYNAMIC_PROCESS_SETS"):
        hvd.add_process_set([0])
    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
    alone, rest = hvd.add_process_set([0]), hvd.add_process_set(hvd.ProcessSet(range(1, size)))
    with raises(ValueError, match="duplicate"):
        hvd.add_process_set([0])
    with raises(ValueError, match="duplicate"):
        hvd.add_process_set(range(size))
    mine, other = (alone, rest) if rank == 0 else (rest, alone)
    assert mine.included() and not other.included() and mine.rank() == max(rank - 1, 0) and rest.size() == size - 1
    with raises(ValueError):
        other.rank()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=mine).item() == mine.size()
    assert hvd.broadcast(torch.tensor(rank), size - 1 if rank else 0, process_set=mine).item() == (
        size - 1 if rank else 0
    )
    assert hvd.broadcast_object(rank, 0 if rank == 0 else 1, process_set=mine) == min(rank, 1)
    with raises(ValueError):
        hvd.allreduce(torch.ones(1), process_set=hvd.ProcessSet([0]))
    with raises(NotImplementedError):
        hvd.allreduce(torch.ones(1), op=hvd.Adasum, process_set=mine)
    hvd.barrier(process_set=mine)
    assert hvd.remove_process_set(rest) and hvd.remove_process_set(alone)
    assert alone.process_set_id is None and not hvd.remove_process_set(alone)
    del os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"]
    assert hvd.global_process_set.included() and hvd.global_process_set.size() == size


def adasum(rank, size):
    if size & (size - 1):
        with raises(NotImplementedError, match="power of 2"):
            hvd.allreduce(torch.ones(1), op=hvd.Adasum)
        return
    # Of two vectors: what is orthogonal is added, what is parallel is averaged.
    mine = torch.zeros(4)
    mine[rank] = 1.0
    assert torch.allclose(hvd.allreduce(mine, op=hvd.Adasum), torch.tensor([1.0, 1.0, 0.0, 0.0]))
    assert torch.allclose(hvd.allreduce(torch.ones(4), op=hvd.Adasum), torch.ones(4))
    # Each tensor by itself, though they go together.
    first, second = hvd.grouped_allreduce([mine, torch.ones(4)], op=hvd.Adasum)
    assert torch.allclose(first, torch.tensor([1.0, 1.0, 0.0, 0.0])) and torch.allclose(second, torch.ones(4))
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -1.0])
    dot = (a * b).sum()
    expected = a * (1 - dot / (2 * a.square().sum())) + b * (1 - dot / (2 * b.square().sum()))
    assert torch.allclose(hvd.allreduce(a if rank == 0 else b, op=hvd.Adasum), expected)


def devices(rank, size):
    """The path of tensors on GPUs, with Gloo's process group in NCCL's place."""
    from horovod.torch import device, gathers, reductions

    def gloo(store, rank, size):
        import torch.distributed as dist

        return dist.ProcessGroupGloo(store, rank, size)

    kept = reductions.on_host, gathers.on_host
    reductions.on_host = gathers.on_host = lambda tensors: False
    try:
        # First through host memory, then by a process group of the device's.
        for make in (None, gloo):
            if make is not None:
                device.use(make)
            for check in (_moved, scatters_of_devices):
                check(rank, size)
        _in_one_order(rank, size)
    finally:
        reductions.on_host, gathers.on_host = kept
        device._make = None


def _in_one_order(rank, size):
    """Ranks that begin the same tensors in another order, and others in the same cycle, run them
    in one order: with tensors of one shape a mistake would be silent.
    """
    from horovod.torch import device

    ran, plain = [], device._reduced

    def reduced(kind, tensors, *more):
        ran.append(int(tensors[0][0]) // 10)
        return plain(kind, tensors, *more)

    device._reduced = reduced
    try:
        names = list(range(12))
        random.Random(rank).shuffle(names)
        handles = {}
        for count, name in enumerate(names):
            handles[name] = hvd.allreduce_async(torch.full((3,), 10.0 * name + rank), name=f"ordered{name}", op=hvd.Sum)
            if count % (3 + rank) == 0:
                time.sleep(0.01)
        for name in sorted(names, reverse=bool(rank)):
            assert hvd.synchronize(handles[name]).tolist() == [10.0 * name * size + sum(range(size))] * 3
    finally:
        device._reduced = plain
    assert sorted(ran) == sorted(names) and hvd.allgather_object(ran) == [ran] * size


def _moved(rank, size):
    total = size * (size + 1) / 2
    mine = torch.ones(5) * (rank + 1)
    assert torch.equal(hvd.allreduce(mine, op=hvd.Sum), torch.full((5,), total))
    assert torch.allclose(hvd.allreduce(mine, prescale_factor=2.0), torch.full((5,), 2 * total / size))
    assert hvd.allreduce(torch.tensor([3 * (rank == 0)])).item() == 3 // size
    one, two = hvd.grouped_allreduce([mine, mine.long()], op=hvd.Max)
    assert torch.equal(one, torch.full((5,), float(size))) and torch.equal(two, torch.full((5,), size))
    handle = hvd.allreduce_async_(mine, op=hvd.Min, name="least")
    assert hvd.synchronize(handle) is mine and torch.equal(mine, torch.ones(5))
    assert hvd.allgather(torch.full((rank + 1, 2), rank)).tolist() == [
        [other] * 2 for other in range(size) for _ in range(other + 1)
    ]
    assert hvd.broadcast(torch.tensor([rank]), size - 1).item() == size - 1
    output, received = hvd.alltoall(torch.full((size,), rank), splits=[1] * size)
    assert output.tolist() == [*range(size)] and received.tolist() == [1] * size
    with raises(hvd.HorovodInternalError):
        hvd.allreduce(torch.ones(2 + rank), name="odd")


def scatters_of_devices(rank, size):
    rows = torch.arange(float(2 * size + 1))
    begin = 3 * rank if rank == 0 else 2 * rank + 1
    assert torch.equal(hvd.reducescatter(rows, op=hvd.Average), rows[begin : begin + 2 + (rank == 0)])
    # GPUs of one host are averaged.
    assert (
        torch.allclose(hvd.allreduce(torch.full((3,), float(rank)), op=hvd.Adasum), torch.full((3,), (size - 1) / 2))
        if size == 2
        else True
    )
