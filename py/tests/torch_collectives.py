"""What the ranks of test_torch.py check: every collective against what it must be by definition."""

import datetime
import time

import torch
import torch.distributed as dist

import shoal.torch
from shoal.torch.tensors import plain

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
]


def close(got, wanted):
    torch.testing.assert_close(got, wanted, check_device=False)


def of(rank, count=5, dtype=torch.float32):
    return (torch.arange(count) % 4 + rank + 1).to(dtype)


def all_reduce(rank, size):
    for dtype in DTYPES:
        for op, reduce in {
            dist.ReduceOp.SUM: lambda all: all.sum(0, dtype=all.dtype),
            dist.ReduceOp.MAX: lambda all: all.amax(0),
            dist.ReduceOp.MIN: lambda all: all.amin(0),
            dist.ReduceOp.PRODUCT: lambda all: all.prod(0, dtype=all.dtype),
        }.items():
            tensor = of(rank, dtype=dtype)
            dist.all_reduce(tensor, op)
            close(tensor, reduce(torch.stack([of(r, dtype=dtype) for r in range(size)])))
    tensor = of(rank)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    close(tensor, sum(of(r) for r in range(size)) / size)


def all_reduce_of_all_sorts(rank, size):
    wanted = sum(of(r) for r in range(size))
    one = of(rank)
    work = dist.all_reduce(one, async_op=True)
    assert work.wait()
    close(one, wanted)
    transposed = torch.stack([of(rank), of(rank)]).t()
    dist.all_reduce(transposed)
    close(transposed, torch.stack([wanted, wanted]).t())
    complex_ = torch.complex(of(rank), of(rank))
    dist.all_reduce(complex_)
    close(complex_, torch.complex(wanted, wanted))
    empty = torch.empty(0)
    dist.all_reduce(empty)
    for op, combine in {
        dist.ReduceOp.BAND: torch.bitwise_and,
        dist.ReduceOp.BOR: torch.bitwise_or,
        dist.ReduceOp.BXOR: torch.bitwise_xor,
    }.items():
        bits = of(rank, dtype=torch.int32)
        dist.all_reduce(bits, op)
        result = of(0, dtype=torch.int32)
        for r in range(1, size):
            result = combine(result, of(r, dtype=torch.int32))
        close(bits, result)
    large = torch.full((3_000_001,), float(rank + 1))
    works = [dist.all_reduce(it, async_op=True) for it in (large[:1000], large[1000:2_000_000], large[2_000_000:])]
    for work in works:
        work.wait()
    assert large.eq(size * (size + 1) / 2).all()
    parameter = torch.nn.Parameter(of(rank))
    dist.all_reduce(parameter.data)
    close(parameter.data, wanted)


def works(rank, size):
    """What may be asked of an operation that is under way: rank 0 begins long before the others."""
    wanted, tensor = sum(of(r) for r in range(size)), of(rank)
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        assert not work.is_completed() and not work.is_success() and work.exception() is None
        try:
            work.wait(datetime.timedelta(milliseconds=100))
            raise AssertionError("done before the others began")
        except shoal.torch.DeadlineExceeded as error:
            assert error.operation == "all_reduce" and error.ranks == [] and "0.1 s" in str(error)
        for other in range(1, size):
            dist.send(torch.ones(1), other)
    else:
        dist.recv(torch.zeros(1), 0)
        work = dist.all_reduce(tensor, async_op=True)
    end = time.monotonic() + 60
    while not work.is_completed():
        assert time.monotonic() < end
        time.sleep(0.001)
    # No wait was needed.
    close(tensor, wanted)
    assert work.is_success() and work.exception() is None and work.wait()
    close(work.result()[0], wanted)
    # What is copied back when it is done was copied when it is completed.
    transposed = torch.stack([of(rank), of(rank)]).t()
    work = dist.all_reduce(transposed, async_op=True)
    while not work.is_completed():
        assert time.monotonic() < end
        time.sleep(0.001)
    close(transposed, torch.stack([wanted, wanted]).t())
    assert dist.barrier(async_op=True).wait() and shoal.torch.failure() is None
    # Works of another backend answer for themselves.
    gloo = dist.new_group(backend="gloo")
    other = dist.all_reduce(of(rank), group=gloo, async_op=True)
    other.wait()
    assert other.is_completed()
    dist.destroy_process_group(gloo)


def futures(rank, size):
    wanted = sum(of(r) for r in range(size))
    tensor = of(rank)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    close(doubled.wait(), wanted * 2)
    tensor = of(rank)
    dist.all_reduce(tensor, async_op=True).get_future().wait()
    close(tensor, wanted)


def reduce_and_broadcast(rank, size):
    for root in range(size):
        tensor = of(rank)
        dist.reduce(tensor, root)
        close(tensor, sum(of(r) for r in range(size)) if rank == root else of(rank))
        tensor = of(rank, 7)
        dist.broadcast(tensor, root)
        close(tensor, of(root, 7))
        mask = torch.tensor([True, False, root == 0]) if rank == root else torch.zeros(3, dtype=torch.bool)
        dist.broadcast(mask, root)
        assert mask.tolist() == [True, False, root == 0]
        unknown = torch.full((3,), root, dtype=torch.uint32) if rank == root else torch.zeros(3, dtype=torch.uint32)
        dist.broadcast(unknown, root)
        assert unknown.tolist() == [root] * 3


def all_gather(rank, size):
    wanted = [of(r) for r in range(size)]
    apart = [torch.zeros(5) for _ in range(size)]
    dist.all_gather(apart, of(rank))
    close(apart, wanted)
    whole = torch.zeros(5 * size)
    dist.all_gather(list(whole.chunk(size)), of(rank))
    close(whole, torch.cat(wanted))
    whole.zero_()
    dist.all_gather_into_tensor(whole, of(rank))
    close(whole, torch.cat(wanted))
    own = whole.chunk(size)[rank]
    whole.zero_()
    own.copy_(of(rank))
    dist.all_gather_into_tensor(whole, own)
    close(whole, torch.cat(wanted))
    uneven = [torch.zeros(r + 1) for r in range(size)]
    dist.all_gather(uneven, of(rank, rank + 1))
    close(uneven, [of(r, r + 1) for r in range(size)])


def reduce_scatter(rank, size):
    whole = torch.cat([of(rank + piece) for piece in range(size)])
    wanted = sum(of(r + rank) for r in range(size))
    got = torch.zeros(5)
    dist.reduce_scatter_tensor(got, whole)
    close(got, wanted)
    got.zero_()
    dist.reduce_scatter(got, [it.clone() for it in whole.chunk(size)], dist.ReduceOp.AVG)
    close(got, wanted / size)
    got = torch.zeros(rank + 1)
    dist.reduce_scatter(got, [torch.full((piece + 1,), float(rank)) for piece in range(size)])
    close(got, torch.full((rank + 1,), float(sum(range(size)))))


def gather_and_scatter(rank, size):
    for root in range(size):
        pieces = [torch.zeros(5) for _ in range(size)] if rank == root else None
        dist.gather(of(rank), pieces, root)
        if rank == root:
            close(pieces, [of(r) for r in range(size)])
        got = torch.zeros(5)
        dist.scatter(got, [of(r + 10) for r in range(size)] if rank == root else None, root)
        close(got, of(rank + 10))


def all_to_all(rank, size):
    got = torch.zeros(2 * size)
    dist.all_to_all_single(got, torch.cat([torch.full((2,), float(10 * rank + r)) for r in range(size)]))
    close(got, torch.cat([torch.full((2,), float(10 * r + rank)) for r in range(size)]))
    # Rank r gives r + 1 rows of two to each.
    got = torch.zeros(sum(r + 1 for r in range(size)), 2)
    given = torch.full(((rank + 1) * size, 2), float(rank))
    dist.all_to_all_single(got, given, [r + 1 for r in range(size)], [rank + 1] * size)
    close(got, torch.cat([torch.full((r + 1, 2), float(r)) for r in range(size)]))
    pieces = [torch.zeros(r + 1) for r in range(size)]
    dist.all_to_all(pieces, [torch.full((rank + 1,), float(10 * rank + r)) for r in range(size)])
    close(pieces, [torch.full((r + 1,), float(10 * r + rank)) for r in range(size)])


def messages(rank, size):
    if rank == 0:
        dist.send(of(3), 1)
        works = [dist.isend(of(it), 1, tag=it) for it in range(4)]
        for work in works:
            work.wait()
        got = torch.zeros(100_000)
        dist.recv(got, 1)
        assert got.eq(7).all()
    elif rank == 1:
        got = torch.zeros(5)
        assert dist.recv(got, 0) == 0
        close(got, of(3))
        for it in range(4):
            work = dist.irecv(got, 0, tag=it)
            work.wait()
            close(got, of(it))
        dist.send(torch.full((100_000,), 7.0), 0)
    by_tag(rank, size)
    from_any(rank, size)
    peer, got = (rank + 1) % size, torch.zeros(5)
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, of(rank), peer), dist.P2POp(dist.irecv, got, (rank - 1) % size)]
    )
    for work in works:
        work.wait()
    close(got, of((rank - 1) % size))


def by_tag(rank, size):
    """Received in another order than sent, by `recv` and `irecv`, short and long."""
    for numel in (0, 5, 300_000):
        if rank == 0:
            works = [dist.isend(torch.full((numel,), float(tag)), 1, tag=tag) for tag in range(4)]
            for work in works:
                work.wait()
        elif rank == 1:
            late = torch.zeros(numel)
            work = dist.irecv(late, 0, tag=3)
            for tag in (2, 0, 1):
                got = torch.zeros(numel)
                assert dist.recv(got, 0, tag=tag) == 0
                assert got.eq(tag).all()
            work.wait()
            assert late.eq(3).all() and work._source_rank() == 0


def from_any(rank, size):
    if rank:
        dist.send(torch.full((5,), float(rank)), 0, tag=2)
        dist.send(torch.full((5,), float(-rank)), 0, tag=7)
        return
    got, late = torch.zeros(5), [torch.zeros(5) for _ in range(1, size)]
    works = [dist.irecv(it, tag=2) for it in late]
    assert sorted(dist.recv(got, tag=7) for _ in range(1, size)) == list(range(1, size))
    sources = []
    for work, it in zip(works, late, strict=True):
        work.wait()
        sources.append(work._source_rank())
        assert it.eq(sources[-1]).all()
    assert sorted(sources) == list(range(1, size))


def objects(rank, size):
    everything = [None] * size
    dist.all_gather_object(everything, {"rank": rank, "text": "x" * (rank * 100)})
    assert everything == [{"rank": r, "text": "x" * (r * 100)} for r in range(size)]
    told = [None, None] if rank else ["a", {"b": 1}]
    dist.broadcast_object_list(told, 0)
    assert told == ["a", {"b": 1}]
    mine = [None]
    dist.scatter_object_list(mine, list(range(size)) if rank == 0 else None, 0)
    assert mine == [rank]
    all_here = [None] * size if rank == 0 else None
    dist.gather_object(rank * 2, all_here, 0)
    assert rank or all_here == [r * 2 for r in range(size)]


def barriers(rank, size):
    dist.barrier()
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    work = dist.barrier(async_op=True)
    work.wait()


def groups(rank, size):
    pair = dist.new_group([0, 1])
    if rank < 2:
        tensor = of(rank)
        dist.all_reduce(tensor, group=pair)
        close(tensor, of(0) + of(1))
        assert shoal.torch.plan(pair).startswith(f"rank {rank} of 2")
    alone = dist.new_group([rank], use_local_synchronization=True)
    tensor = of(rank)
    dist.all_reduce(tensor, group=alone)
    close(tensor, of(rank))
    dist.destroy_process_group(alone)
    if rank < 2:
        dist.destroy_process_group(pair)
    dist.barrier()


def coalesced(rank, size):
    from torch.distributed.distributed_c10d import _coalescing_manager

    one, two = of(rank), of(rank + 1)
    with _coalescing_manager():
        dist.all_reduce(one)
        dist.all_reduce(two)
    close([one, two], [sum(of(r) for r in range(size)), sum(of(r + 1) for r in range(size))])


def functional(rank, size):
    import torch.distributed._functional_collectives as functional

    wanted = sum(of(r) for r in range(size))
    close(functional.all_reduce(of(rank), "sum", dist.group.WORLD) + 0, wanted)
    close(functional.all_gather_tensor(of(rank), 0, dist.group.WORLD) + 0, torch.cat([of(r) for r in range(size)]))
    whole = torch.cat([of(rank)] * size)
    close(functional.reduce_scatter_tensor(whole, "sum", 0, dist.group.WORLD) + 0, wanted)


def registered(rank, size):
    memory = shoal.torch.empty(1000, 3)
    assert memory.shape == (1000, 3) and memory.dtype == torch.float32
    memory.fill_(rank + 1)
    dist.all_reduce(memory)
    assert memory.eq(size * (size + 1) / 2).all()
    part = memory.view(-1)[5:10]
    part.copy_(of(rank))
    dist.all_reduce(part)
    close(part, sum(of(r) for r in range(size)))
    half = shoal.torch.empty(8, dtype=torch.bfloat16)
    half.fill_(rank)
    dist.all_reduce(half, dist.ReduceOp.MAX)
    assert half.eq(size - 1).all()


def mistakes(rank, size):
    def refused(call):
        try:
            call()
        except shoal.torch.CommError as error:
            return str(error)
        raise AssertionError("not refused")

    assert "dense CPU tensors" in refused(lambda: plain(torch.zeros(2, device="meta")))
    assert "do not fit" in refused(lambda: dist.all_gather_into_tensor(torch.zeros(size * 5 + 1), of(rank)))
    assert "average" in refused(lambda: dist.all_reduce(of(rank, dtype=torch.int32), dist.ReduceOp.AVG))
    # The group goes on.
    tensor = of(rank)
    dist.all_reduce(tensor)
    close(tensor, sum(of(r) for r in range(size)))
