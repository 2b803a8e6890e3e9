"""What the ranks of test_torch_training.py check: training on several ranks against one process with the same global batch."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import shoal.torch

STEPS = 4
BATCH = 6


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(20, 300), nn.Tanh(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 5))


def data(size):
    torch.manual_seed(2)
    return torch.randn(STEPS, size, BATCH, 20), torch.randn(STEPS, size, BATCH, 5)


def alone(size, make=lambda it: torch.optim.SGD(it, lr=0.1)):
    """The parameters after training by one process on all ranks' samples."""
    net = model()
    optimizer = make(net.parameters())
    xs, ys = data(size)
    for x, y in zip(xs, ys, strict=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x.flatten(0, 1)), y.flatten(0, 1)).backward()
        optimizer.step()
    return [it.detach() for it in net.parameters()]


def together(rank, size, net, optimizer):
    """Trains on this rank's samples."""
    xs, ys = data(size)
    for x, y in zip(xs[:, rank], ys[:, rank], strict=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
    return [it.detach() for it in net.parameters()]


def near(got, wanted, tolerance=1e-5):
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


def same_everywhere(parameters, size):
    """Every rank has the same bits."""
    for it in parameters:
        every = [torch.empty_like(it) for _ in range(size)]
        dist.all_gather(every, it)
        assert all(torch.equal(other, it) for other in every)


def ddp(rank, size):
    wanted = alone(size)
    for options in (
        {},
        {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.2},
        {"find_unused_parameters": True, "broadcast_buffers": False},
        {"static_graph": True},
    ):
        net = DistributedDataParallel(model(), **options)
        got = together(rank, size, net, torch.optim.SGD(net.parameters(), lr=0.1))
        near(got, wanted)
        same_everywhere(got, size)


def ddp_with_batch_norm(rank, size):
    """Buffers are broadcast, gradients accumulated without communication."""
    torch.manual_seed(rank)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)))
    for _ in range(3):
        with net.no_sync():
            net(torch.randn(6, 4)).sum().backward()
        net(torch.randn(6, 4)).sum().backward()
    same_everywhere([it.grad for it in net.parameters()], size)
    net(torch.randn(6, 4))


def zero(rank, size):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    adam = {"lr": 0.01}
    wanted = alone(size, lambda it: torch.optim.Adam(it, **adam))
    net = DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, **adam)
    got = together(rank, size, net, optimizer)
    near(got, wanted, 1e-4)
    same_everywhere(got, size)
    optimizer.consolidate_state_dict(0)


def fsdp1(rank, size):
    from torch.distributed.fsdp import FullyShardedDataParallel

    wanted = alone(size)
    net = FullyShardedDataParallel(model(), device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    together(rank, size, net, optimizer)
    with FullyShardedDataParallel.summon_full_params(net):
        near([it.detach().clone().view(other.shape) for it, other in zip(net.parameters(), wanted, strict=True)], wanted)


def fsdp2(rank, size):
    from torch.distributed.fsdp import fully_shard

    wanted = alone(size)
    net = model()
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    got = together(rank, size, net, optimizer)
    near([it.full_tensor() for it in got], wanted)


def hooks(rank, size):
    wanted = alone(size)
    for hook, tolerance in ((shoal.torch.hooks.all_reduce, 1e-5), (shoal.torch.hooks.bf16, 2e-2), (shoal.torch.hooks.fp16, 2e-3)):
        net = DistributedDataParallel(model(), gradient_as_bucket_view=True)
        net.register_comm_hook(None, hook)
        got = together(rank, size, net, torch.optim.SGD(net.parameters(), lr=0.1))
        near(got, wanted, tolerance)
        same_everywhere(got, size)
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    net = DistributedDataParallel(model())
    net.register_comm_hook(None, default_hooks.bf16_compress_hook)
    near(together(rank, size, net, torch.optim.SGD(net.parameters(), lr=0.1)), wanted, 2e-2)


def distributed_optimizer(rank, size):
    wanted = alone(size)
    net = model()
    if rank:
        for it in net.parameters():
            it.data.zero_()
    optimizer = shoal.torch.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), bucket_mb=0.2)
    got = together(rank, size, net, optimizer)
    near(got, wanted)
    same_everywhere(got, size)
    assert isinstance(optimizer, torch.optim.SGD)


def distributed_optimizer_over_several_passes(rank, size):
    """Two backward passes make one step: with the average of both, and with their sum."""
    for average in (True, False):
        net, reference = model(), model()
        reference.load_state_dict(copy.deepcopy(net.state_dict()))
        optimizer = shoal.torch.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.05), backward_passes_per_step=2, average_aggregated_gradients=average
        )
        plain = torch.optim.SGD(reference.parameters(), lr=0.05)
        xs, ys = data(size)
        for step in range(0, STEPS, 2):
            optimizer.zero_grad()
            plain.zero_grad()
            for each in (step, step + 1):
                nn.functional.mse_loss(net(xs[each, rank]), ys[each, rank]).backward()
                whole = nn.functional.mse_loss(reference(xs[each].flatten(0, 1)), ys[each].flatten(0, 1))
                (whole / 2 if average else whole).backward()
            optimizer.step()
            plain.step()
        near([it.detach() for it in net.parameters()], [it.detach() for it in reference.parameters()])
