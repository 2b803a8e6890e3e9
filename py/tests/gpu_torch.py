"""What ranks of test_gpu.py check of `shoal.torch`: training on a GPU as one process without it
would.
"""

import copy

import torch
import torch.distributed as dist
from gpu_device import DEVICE, batches, near, network, same_weights, sleep
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import shoal.torch
from horovod_expect import raises
from shoal.comm import ConfigError
from shoal.torch import LargeBatch, LocalTraining
from shoal.torch.optim import LAMB, LARS, layers

WORKERS, STEPS = 4, 6
#: This step's gradients are not finite.
BAD = 2


def _averages():
    """Whether the group's operations average: Gloo's, which stand for NCCL's in a rehearsal,
    only add.
    """
    return f"{DEVICE.type}:gloo" not in dist.get_backend_config()


def _loss(model, inputs, targets):
    with torch.autocast(DEVICE.type, torch.bfloat16 if DEVICE.type == "cpu" else torch.float16):
        output = model(inputs)
    return (output.float() - targets).square().mean()


def _scaler():
    return torch.amp.GradScaler(DEVICE.type, init_scale=1024.0, growth_interval=2)


def _by_hand():
    """Weights and loss scales of one process that accumulates all workers' passes."""
    net, scaler, trace = network(), _scaler(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    for step in range(STEPS):
        inputs, targets = batches(WORKERS, seed=step)
        for worker in range(WORKERS):
            scaler.scale(
                _loss(net, inputs[worker], targets[worker])
                * (torch.inf if step == BAD and worker == WORKERS - 1 else 1.0)
            ).backward()
        torch._foreach_mul_([it.grad for it in net.parameters()], 1 / WORKERS)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        trace.append(scaler.get_scale())
    return net, trace


def _simulated(rank, size, ddp):
    net, scaler, trace = network(), _scaler(), []
    model = DistributedDataParallel(net) if ddp else net
    optimizer = LargeBatch(torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9), WORKERS, model=model)
    for step in range(STEPS):
        inputs, targets = batches(WORKERS, seed=step)
        for number in range(WORKERS // size):
            worker = optimizer.worker
            optimizer.zero_grad()
            scaler.scale(
                _loss(model, inputs[worker], targets[worker])
                * (torch.inf if step == BAD and worker == WORKERS - 1 else 1.0)
            ).backward()
            assert optimizer.complete == (number == WORKERS // size - 1)
            scaler.step(optimizer)
            scaler.update()
        trace.append(scaler.get_scale())
    return net, trace


def _large_batch(rank, size, ddp):
    wanted, scales = _by_hand()
    net, trace = _simulated(rank, size, ddp)
    assert trace == scales and len(set(scales)) > 1, (trace, scales)
    if size == 1 and not ddp:
        # The same kernels in the same order.
        assert all(torch.equal(one, other) for one, other in zip(net.parameters(), wanted.parameters(), strict=True))
    same_weights(net, wanted, 1e-4)


def large_batch(rank, size):
    """Weights and the trace of loss scales are those of the training without simulation."""
    _large_batch(rank, size, False)


def data_parallel(rank, size):
    """The same with DistributedDataParallel; its hooks give the mean, too."""
    _large_batch(rank, size, True)
    for hook in (shoal.torch.hooks.all_reduce, shoal.torch.hooks.bf16, shoal.torch.hooks.fp16) if _averages() else ():
        net = network()
        model = DistributedDataParallel(net)
        model.register_comm_hook(None, hook)
        model(torch.full((4, 12), rank + 1.0, device=DEVICE)).sum().backward()
        near(net[2].bias.grad, torch.full((1,), 4.0))
        assert net[0].weight.grad.device == DEVICE


def optimizers(rank, size):
    """LARS and LAMB step on the GPU as on the processor."""
    for make in (lambda it: LARS(it, lr=0.5, trust=0.02), lambda it: LAMB(it, lr=0.01, highest=10.0)):
        on_device, on_host = network(), copy.deepcopy(network()).cpu()
        steppers = [make(layers(it)) for it in (on_device, on_host)]
        for step in range(5):
            inputs, targets = batches(1, seed=step)
            for net, optimizer in zip((on_device, on_host), steppers, strict=True):
                where = next(net.parameters()).device
                optimizer.zero_grad()
                (net(inputs[0].to(where)) - targets[0].to(where)).square().mean().backward()
                optimizer.step()
        assert any(
            not torch.equal(one, other)
            for one, other in zip(on_device.parameters(), network().parameters(), strict=True)
        )
        same_weights(on_device, on_host, 1e-4)


def distributed_optimizer(rank, size):
    """`shoal.torch.DistributedOptimizer` over several passes, behind a long kernel."""
    if not _averages():
        return
    inputs, targets = batches(2 * size)
    wanted, net = network(), network(seed=1 + rank)
    plain = torch.optim.SGD(wanted.parameters(), lr=0.3)
    optimizer = shoal.torch.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.3), backward_passes_per_step=2, bucket_mb=0.001
    )
    for _ in range(3):
        plain.zero_grad()
        (wanted(inputs) - targets).square().mean().backward()
        plain.step()
        optimizer.zero_grad()
        if DEVICE.type == "cuda":
            sleep()
        for number in (2 * rank, 2 * rank + 1):
            (net(inputs[number]) - targets[number]).square().mean().backward()
        optimizer.step()
    same_weights(net, wanted)


def local_training(rank, size):
    """All wires: the mean of ranks' weights, or of their movements; fragments on their way while
    training goes on.
    """
    inputs, targets = batches(size)
    has_int8 = "shoal" in dist.get_backend_config()
    for wire, tolerance in [("f32", 1e-5), ("bf16", 2e-2), *([("int8", 2e-2)] if has_int8 else [])]:
        models = [network() for _ in range(size)]
        for at, net in enumerate(models):
            stepper = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(3):
                stepper.zero_grad()
                (net(inputs[at]) - targets[at]).square().mean().backward()
                stepper.step()
        wanted = models[0]
        with torch.no_grad():
            for parts in zip(*(it.parameters() for it in models), strict=True):
                parts[0].copy_(torch.stack(parts).mean(0))
        net = network(seed=1 + rank)
        local = LocalTraining(net, torch.optim.SGD(net.parameters(), lr=0.1), "post_local_sgd", every=3, wire=wire)
        for _ in range(3):
            local.zero_grad()
            (net(inputs[rank]) - targets[rank]).square().mean().backward()
            local.step()
        local.finish()
        same_weights(net, wanted, tolerance)
    net = network(seed=1 + rank)
    local = LocalTraining(
        net, torch.optim.AdamW(net.parameters(), lr=0.01), every=4, synchronous=2, fragments=2, delay=1
    )
    for _ in range(11):
        local.zero_grad()
        (net(inputs[rank]) - targets[rank]).square().mean().backward()
        local.step()
    local.finish()
    every = [None] * size
    dist.all_gather_object(every, [it.detach().cpu() for it in net.parameters()])
    for other in every:
        assert all(torch.equal(one, it) and torch.isfinite(it).all() for one, it in zip(other, every[0], strict=True))


def both_backends(rank, size):
    """Backend "shoal" for CPU tensors beside NCCL for those of GPUs."""
    total = size * (size + 1) / 2
    for where in ("cpu", DEVICE):
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64):
            it = torch.full((1000,), rank + 1, dtype=dtype, device=where)
            dist.all_reduce(it)
            assert it.device == torch.device(where) and torch.equal(it.cpu(), torch.full((1000,), total).to(dtype))
        every = [torch.empty(3, device=where) for _ in range(size)]
        dist.all_gather(every, torch.full((3,), float(rank), device=where))
        assert [it[0].item() for it in every] == [*range(size)]
        it = torch.tensor([float(rank)], device=where)
        dist.broadcast(it, size - 1)
        assert it.item() == size - 1
    dist.barrier()
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": it} for it in range(size)]
    assert "all_reduce" in shoal.torch.plan()
    memory = shoal.torch.empty(100)
    assert memory.device.type == "cpu" and not memory.any()


def kernels_before_and_after(rank, size):
    """A collective waits for the kernels that make its input, and later kernels wait for its
    result.
    """
    for _ in range(3):
        it = torch.zeros(1_000_000, device=DEVICE)
        sleep()
        it.fill_(rank + 1.0)
        work = dist.all_reduce(it, async_op=True)
        work.wait()
        after = it * 2
        assert torch.equal(after, torch.full_like(after, size * (size + 1.0)))
    # Gradients of a LargeBatch that are made behind a long kernel, and used at once.
    net, wanted = network(), network()
    optimizer = LargeBatch(torch.optim.SGD(net.parameters(), lr=0.1), 2 * size, broadcast_parameters=False)
    inputs, targets = batches(2 * size)
    for number in range(2):
        late = torch.zeros_like(inputs[0])
        sleep()
        late.copy_(inputs[optimizer.worker])
        (net(late) - targets[optimizer.worker]).square().mean().backward()
        optimizer.step()
    (wanted(inputs) - targets).square().mean().backward()
    torch.optim.SGD(wanted.parameters(), lr=0.1).step()
    same_weights(net, wanted)


def compressors(rank, size):
    """Compressors work in host memory: gradients on a GPU are refused before their address is
    used.
    """
    net = nn.Linear(4, 4).to(DEVICE)
    model = DistributedDataParallel(net)
    model.register_comm_hook(shoal.torch.hooks.Int8(plain_steps=0), shoal.torch.hooks.compressed)
    with raises((ConfigError, RuntimeError), match="compressors work in host memory"):
        model(torch.ones(2, 4, device=DEVICE)).sum().backward()
