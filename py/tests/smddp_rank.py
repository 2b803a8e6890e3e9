"""One rank of test_smddp.py, as mpirun starts it: a script for version 1 of smddp, and then for
the backend "smddp".
"""

import os
import warnings

import torch

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import smdistributed.dataparallel.torch.distributed as dist
assert any("torch_smddp" in str(it.message) for it in said)

import smdistributed.dataparallel  # noqa: E402
import smdistributed.dataparallel.torch as smddp  # noqa: E402
from smdistributed.dataparallel.exceptions import SMDDPConfigError, SMDDPError, SMDDPNotInitializedError  # noqa: E402
from smdistributed.dataparallel.torch.parallel import DistributedDataParallel as Same  # noqa: E402
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as DDP  # noqa: E402


def refused(kind, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        return str(error)
    raise AssertionError(f"{function.__name__}: nothing was raised")


def collectives(rank):
    it = torch.tensor([1.0 + rank])
    assert dist.all_reduce(it) is None and it.item() == 3
    it = torch.tensor([1.0 + rank])
    dist.all_reduce(it, op=dist.ReduceOp.AVERAGE, group=dist.group.WORLD)
    assert it.item() == 1.5
    for op, wanted in ((dist.ReduceOp.SUM, 3), (dist.ReduceOp.MIN, 1), (dist.ReduceOp.MAX, 2)):
        it = torch.tensor([1 + rank])
        dist.all_reduce(it, op, async_op=True).wait()
        assert it.item() == wanted
    it = torch.tensor([float(rank)])
    dist.broadcast(it, 1)
    assert it.item() == 1
    dist.broadcast(torch.zeros(1), src=0, async_op=True).wait()
    several = [torch.empty(2) for _ in range(2)]
    dist.all_gather(several, torch.full((2,), float(rank)))
    assert torch.stack(several).tolist() == [[0, 0], [1, 1]]
    output = torch.empty(4)
    dist.all_to_all_single(output, torch.arange(4.0) + 10 * rank)
    assert output.tolist() == [2 * rank, 2 * rank + 1, 10 + 2 * rank, 11 + 2 * rank]
    # Rank 0 gives one row to itself and three to rank 1, rank 1 two to each.
    given, taken = ([1, 3], [1, 2]) if rank == 0 else ([2, 2], [3, 2])
    output = torch.empty(sum(taken))
    dist.all_to_all_single(output, torch.arange(4.0) + 10 * rank, taken, given, dist.group.WORLD)
    assert output.tolist() == ([0, 10, 11] if rank == 0 else [1, 2, 3, 12, 13])
    dist.barrier()
    dist.barrier(dist.group.WORLD, async_op=True).wait()
    assert dist.get_rank(dist.group.WORLD) == rank and dist.get_world_size(group=dist.group.WORLD) == 2


def training(rank):
    torch.manual_seed(rank)
    plain = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    net = DDP(
        plain,
        device_ids=[dist.get_local_rank()],
        output_device=dist.get_local_rank(),
        broadcast_buffers=False,
        bucket_cap_mb=1,
    )
    assert DDP is Same and net.module is plain and all(it.startswith("module.") for it in net.state_dict())
    every = [torch.empty(4, 3) for _ in range(2)]
    dist.all_gather(every, plain[0].weight.data)
    assert torch.equal(*every)
    with net.no_sync():
        net(torch.randn(5, 3)).sum().backward()
    dist.all_gather(every, plain[0].weight.grad)
    assert not torch.equal(*every)
    before, net.module[0].weight.grad = plain[0].weight.grad.clone(), None
    net(torch.randn(5, 3)).sum().backward()
    dist.all_gather(every, plain[0].weight.grad)
    assert torch.equal(*every) and not torch.equal(before, every[0])
    said = refused(SMDDPConfigError, DDP, torch.nn.Linear(1, 1), device_ids=[0, 1])
    assert "one device" in said and "[0]" in said or "[1]" in said


def main():
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    assert smdistributed.dataparallel.__version__ == smddp.__version__ and smddp.__version__ >= "1.4"
    assert (os.environ["RANK"], os.environ["SMDATAPARALLEL_LOCAL_RANK"], os.environ["MASTER_ADDR"]) == (
        str(rank),
        str(rank),
        "127.0.0.1",
    )
    assert dist.is_available() and not dist.is_initialized() and smddp.is_available()
    assert "init_process_group()" in refused(SMDDPNotInitializedError, dist.get_rank)
    assert "init_process_group()" in refused(SMDDPError, DDP, torch.nn.Linear(1, 1))
    dist.init_process_group("nccl", "env://", world_size=99, rank=-1, anything=True)
    assert dist.is_initialized() and "already" in refused(SMDDPNotInitializedError, dist.init_process_group)
    assert (smddp.get_rank(), smddp.get_world_size(), smddp.get_local_rank()) == (rank, 2, rank)
    collectives(rank)
    training(rank)
    torch.distributed.destroy_process_group()
    # Since version 1.4.
    torch.distributed.init_process_group(
        backend="smddp", init_method=f"tcp://127.0.0.1:{os.environ['SECOND_PORT']}", rank=rank, world_size=2
    )
    assert torch.distributed.get_backend() == "smddp"
    it = torch.ones(1)
    torch.distributed.all_reduce(it)
    assert it.item() == 2
    torch.distributed.destroy_process_group()
    print("trained")


main()
