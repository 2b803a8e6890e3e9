"""What the ranks of test_torch_training.py check: training on several ranks against one process
with the same global batch.
"""

import copy
import math
import os
import socket
import struct
import sys
from pathlib import Path

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
        near(
            [it.detach().clone().view(other.shape) for it, other in zip(net.parameters(), wanted, strict=True)], wanted
        )


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
    for hook, tolerance in (
        (shoal.torch.hooks.all_reduce, 1e-5),
        (shoal.torch.hooks.bf16, 2e-2),
        (shoal.torch.hooks.fp16, 2e-3),
    ):
        net = DistributedDataParallel(model(), gradient_as_bucket_view=True)
        net.register_comm_hook(None, hook)
        got = together(rank, size, net, torch.optim.SGD(net.parameters(), lr=0.1))
        near(got, wanted, tolerance)
        same_everywhere(got, size)
    # Buckets in registered memory, in one and in several buckets, with gradients that are views of
    # them and that are not.
    for options in (
        {"gradient_as_bucket_view": True},
        {"bucket_cap_mb": 0.2},
        {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.2},
    ):
        net = DistributedDataParallel(model(), **options)
        net.register_comm_hook(shoal.torch.hooks.Registered(), shoal.torch.hooks.registered)
        got = together(rank, size, net, torch.optim.SGD(net.parameters(), lr=0.1))
        near(got, wanted)
        same_everywhere(got, size)
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    net = DistributedDataParallel(model())
    net.register_comm_hook(None, default_hooks.bf16_compress_hook)
    near(together(rank, size, net, torch.optim.SGD(net.parameters(), lr=0.1)), wanted, 2e-2)


def tcp_bytes_sent():
    """Bytes that this process has sent over TCP so far, each counted once, as the system says
    (struct tcp_info of linux/tcp.h).
    """
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as it:
                if it.type == socket.SOCK_STREAM and it.family in (socket.AF_INET, socket.AF_INET6):
                    info = it.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                    sent, again = struct.unpack_from("=QQ", info, 200)
                    total += sent - again
        except OSError:
            # Closed meanwhile.
            continue
    return total


def hooks_on_mnist(rank, size):
    """Every hook trains the network of the example about as well as no hook does, and sends as
    many bytes as its compressor says: the ranks are connected by TCP.
    """
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import mnist_ddp

    pictures, labels = mnist_ddp.images(Path(os.environ["MNIST"]), "train")
    order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(0))
    batch, steps = 64, 150
    parameters = 205_896
    blocks = math.ceil(parameters / 256)
    shapes = [(16, 25), (32, 400), (122, 1568), (10, 122)]
    thin = sum(2 * (rows + columns) for rows, columns in shapes)
    rest = parameters - sum(rows * columns for rows, columns in shapes)
    whole = 4 * parameters * 2 * (size - 1) // size
    # Bytes of a step that each rank gives; those of int8 and of what is left out of a share may
    # differ by a block or an element.
    expected = {
        "none": whole,
        "bf16": whole // 2,
        "fp16": whole // 2,
        "int8": blocks * 260 * 2 * (size - 1) // size,
        "top-k": 8 * math.ceil(parameters / 100) * (size - 1),
        "powersgd": 4 * (thin + rest) * 2 * (size - 1) // size,
    }
    losses = {}
    for name, wire in expected.items():
        torch.manual_seed(0)
        net = DistributedDataParallel(mnist_ddp.network(), gradient_as_bucket_view=True)
        state = mnist_ddp.compress(net, name)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        seen = []
        for step in range(steps):
            if step == 1:
                # The first step goes as it is, and makes connections.
                dist.barrier()
                before, reported = tcp_bytes_sent(), getattr(state, "wire_bytes", 0)
            share = order[step * batch : (step + 1) * batch].chunk(size)[rank]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(pictures[share]), labels[share])
            loss.backward()
            optimizer.step()
            seen.append(loss.detach())
        sent = tcp_bytes_sent() - before
        # Frames, signs of life and torch's store are the rest.
        most = wire * (steps - 1)
        assert 0.99 * most < sent < 1.02 * most + 400 * (steps - 1) * 20, (name, sent, most)
        if state is not None:
            assert abs(state.wire_bytes - reported - most) <= 0.002 * most, (name, state.wire_bytes - reported, most)
            assert state.plain_bytes == whole * steps and 0 <= state.lost < state.input
        same_everywhere([it.detach() for it in net.parameters()], size)
        last = torch.stack(seen[-10:]).mean()
        dist.all_reduce(last, dist.ReduceOp.AVG)
        losses[name] = last.item()
    assert losses["none"] < 0.5, losses
    for name, loss in losses.items():
        assert loss < 1.25 * losses["none"] + 0.05, (name, losses)
    print(losses, file=sys.stderr, flush=True)


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
