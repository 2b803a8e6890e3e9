"""What ranks of test_torch.py check of groups, futures, sparse tensors and the profiler."""

import datetime
import time

import torch
import torch.distributed as dist

import shoal.torch
from horovod_expect import raises
from shoal.comm import ConfigError
from shoal.torch.backend import is_ours, of
from shoal.torch.local_training_wire import Wire
from shoal.torch.reach import reaches


def nested_futures(rank, size):
    """Callbacks that wait for futures of later operations, as torch's powerSGD_hook has them."""

    def then(done):
        inner = dist.all_reduce(torch.ones(3), async_op=True).get_future()
        return done.value()[0] + inner.wait()[0]

    if rank == 0:
        # On the other ranks nothing is done before the callbacks are there, so that the thread that
        # reports runs them.
        time.sleep(0.2)
    works = [dist.all_reduce(torch.full((3,), float(it)), async_op=True) for it in range(4)]
    # After all of these were begun: ranks call operations in one order.
    futures = [work.get_future().then(then) for work in works]
    for it, future in enumerate(futures):
        assert future.wait().tolist() == [size * it + size] * 3


def sparse(rank, size):
    def own(of):
        return torch.sparse_coo_tensor([[0, of]], torch.tensor([[1.0, 2.0], [float(of), 3.0]]), (size + 1, 2))

    wanted = sum(own(r).to_dense() for r in range(size))
    tensor = own(rank)
    dist.all_reduce(tensor)
    assert tensor.is_sparse and torch.equal(tensor.to_dense(), wanted)
    tensor = own(rank).coalesce()
    work = dist.all_reduce(tensor, dist.ReduceOp.AVG, async_op=True)
    work.wait()
    torch.testing.assert_close(tensor.to_dense(), wanted / size)
    try:
        dist.all_reduce(own(rank), dist.ReduceOp.MAX)
        raise AssertionError("not refused")
    except shoal.torch.ConfigError as error:
        assert "to_dense" in str(error)


def splits(rank, size):
    """Ranks 0 and 1 make a group, the others another, by one call."""
    parts = [[0, 1], list(range(2, size))] if size > 2 else [[0, 1]]
    part = dist.split_group(split_ranks=parts)
    members = next(it for it in parts if rank in it)
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor, group=part)
    assert tensor.item() == sum(members) and dist.get_world_size(part) == len(members)
    assert shoal.torch.plan(part).startswith(f"rank {members.index(rank)} of {len(members)}")
    dist.destroy_process_group(part)


def groups_of_one_name(rank, size):
    """torch numbers groups on each rank, so groups of different ranks that these make by
    themselves have one name.
    """
    members = [0, 1] if rank < 2 else [2]
    store = dist.distributed_c10d._get_default_store()
    store.set(f"one/shoal/{rank}", "")
    from shoal.torch.backend import _join

    group = _join(
        members.index(rank),
        members,
        dist.PrefixStore("one", store),
        datetime.timedelta(seconds=60),
        {"SHOAL_COMM_REPLACES": "0"},
    )
    assert group.size == len(members) and group.rank == members.index(rank)
    group.close()


def alone(rank, size):
    """A group of one rank needs no store: this one fails whoever asks it."""
    from shoal.torch.backend import _join

    group = _join(0, [rank], None, datetime.timedelta(seconds=60), {"SHOAL_COMM_REPLACES": "0"})
    assert (group.rank, group.size) == (0, 1)
    group.close()


def of_gpus_alone(rank, size):
    """A group without operations on CPU tensors, as one of NCCL: it is not of this backend, and
    is asked for nothing that it has not.
    """
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    if not hasattr(dist.Backend, "GPUS_ALONE"):
        dist.Backend.register_backend("gpus_alone", lambda *given: dist.ProcessGroupGloo(*given), devices=["cuda"])
    group = dist.new_group(backend="gpus_alone")
    assert reaches(group, cuda) and not reaches(group, cpu) and not is_ours(group)
    assert reaches(dist.group.WORLD, cpu) and not reaches(dist.group.WORLD, cuda) and is_ours(dist.group.WORLD)
    with raises(ConfigError, match="no process group of backend shoal"):
        of(group)
    parameters = torch.nn.Linear(2, 2).parameters()
    shoal.torch.LargeBatch(torch.optim.SGD(parameters, lr=0.1), 2 * size, group=group, broadcast_parameters=False)
    assert not Wire(10, "bf16", group, 0, cpu).is_registered and Wire(10, "f32", dist.group.WORLD, 0, cpu).is_registered
    # A vector of a GPU's parameters in host memory, where the group has operations alone.
    assert Wire(10, "f32", dist.group.WORLD, 0, cuda).vector.device == cpu
    with raises(ConfigError, match='wants a process group of backend "shoal"'):
        Wire(10, "int8", group, 0, cpu)
    dist.destroy_process_group(group)


def sequence_numbers(rank, size):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    before = backend._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    dist.barrier()
    assert backend._get_sequence_number_for_group() == before + 2


def profiled(rank, size):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        dist.all_reduce(torch.ones(3, 4))
        dist.broadcast(torch.ones(5), 0, async_op=True).wait()
        if rank < 2:
            dist.recv(torch.zeros(2), 1 - rank) if rank else dist.send(torch.zeros(2), 1)
    events = {event.name: event for event in profiler.events() if event.name.startswith("shoal:")}
    assert {"shoal:all_reduce", "shoal:broadcast"} <= set(events), events
    assert events["shoal:all_reduce"].input_shapes == [[3, 4]]
    if rank < 2:
        assert ("shoal:recv" if rank else "shoal:send") in events
    dist.barrier()


def monitored(rank, size):
    """A timeout of nothing is over on rank 0; the group goes on."""
    dist.monitored_barrier(wait_all_ranks=True)
    if rank == 0:
        try:
            dist.group.WORLD.monitored_barrier(datetime.timedelta(0))
            raise AssertionError("not timed out")
        except shoal.torch.DeadlineExceeded as error:
            assert "Rank 0 timed out in monitoredBarrier" in str(error)
    dist.barrier()
