"""What ranks of test_gpu.py check of `horovod.torch`: tensors on a GPU, over NCCL where each
rank has one, through host memory where they share it.
"""

import os

import torch
from gpu_device import DEVICE, batches, near, network, same_weights, sleep

import horovod.torch as hvd
from horovod_expect import raises

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int32, torch.int64)


def _full(shape, value, dtype=torch.float32):
    return torch.full(shape, value, dtype=dtype, device=DEVICE)


def _is(got, wanted):
    assert got.device == DEVICE, got.device
    assert torch.equal(got, torch.as_tensor(wanted, device=DEVICE, dtype=got.dtype)), (got, wanted)


def which_way(rank, size):
    """NCCL for a rank alone and for ranks with a GPU each; host memory for those that share one,
    or where it is asked for.
    """
    from horovod.torch import device

    shared = size > 1 and os.environ.get("CUDA_VISIBLE_DEVICES") == "0"
    by_host = shared or os.environ.get("HOROVOD_GPU_OPERATIONS") == "HOST"
    assert (device._make is None) == by_host, device._make
    hvd.allreduce(_full((4,), 1.0), name="which way")
    assert bool(device._groups) != by_host


def operations(rank, size):
    total = size * (size + 1) // 2
    for dtype in (*FLOATS, *INTEGERS):
        mine = torch.arange(5, device=DEVICE).to(dtype) * (rank + 1)
        _is(hvd.allreduce(mine, op=hvd.Sum), torch.arange(5) * total)
        assert hvd.allreduce_(mine, op=hvd.Max, name="largest") is mine
        _is(mine, torch.arange(5) * size)
        _is(
            hvd.allgather(_full((rank + 1, 2), rank, dtype)),
            [[other] * 2 for other in range(size) for _ in range(other + 1)],
        )
    near(hvd.allreduce(_full((3,), float(rank))), [(size - 1) / 2] * 3)
    _is(hvd.allreduce(_full((3,), 2.0), op=hvd.Product), [2.0**size] * 3)
    near(hvd.allreduce(_full((4,), 1.0), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0), [1.5 * size] * 4)
    # Averages of integers are cut off.
    _is(hvd.allreduce(torch.tensor([-3, 3], device=DEVICE) * (rank == 0)), [-(3 // size), 3 // size])
    near(hvd.allreduce(_full((3,), 1 / 3), op=hvd.Sum, compression=hvd.Compression.fp16), [size / 3] * 3, 1e-3)
    # Longer than any buffer, and its last element.
    long = hvd.allreduce(torch.arange(3_000_001.0, device=DEVICE) % 1000, op=hvd.Sum)
    assert torch.equal(long, torch.arange(3_000_001.0, device=DEVICE) % 1000 * size)
    for root in range(size):
        _is(hvd.broadcast(torch.tensor([rank, 7], device=DEVICE), root), [root, 7])
    own = torch.tensor(float(rank), device=DEVICE)
    assert hvd.broadcast_(own, size - 1) is own and own.item() == size - 1
    # Rank r sends s + 1 rows to rank s.
    rows = (torch.repeat_interleave(torch.arange(size), torch.arange(1, size + 1)) + 10 * rank).to(DEVICE)
    output, received = hvd.alltoall(rows, splits=torch.arange(1, size + 1, dtype=torch.int32))
    _is(output, [rank + 10 * other for other in range(size) for _ in range(rank + 1)])
    assert received.tolist() == [rank + 1] * size
    pieces = torch.arange(2.0 * size + 1, device=DEVICE)
    begin = 3 * rank if rank == 0 else 2 * rank + 1
    _is(hvd.reducescatter(pieces, op=hvd.Average), pieces[begin : begin + 2 + (rank == 0)])
    ones = torch.ones(4, device=DEVICE, requires_grad=True)
    hvd.allreduce(ones, op=hvd.Sum).backward(_full((4,), rank + 1.0))
    _is(ones.grad, [float(total)] * 4)
    if size > 1:
        with raises(hvd.HorovodInternalError):
            hvd.allreduce(_full((2 + rank,), 1.0), name="odd")


def groups(rank, size):
    tensors = [_full((number + 1,), float(rank)) for number in range(5)]
    for it in hvd.grouped_allreduce(tensors, name="five"):
        near(it, torch.full(it.shape, (size - 1) / 2))
    assert hvd.synchronize(hvd.grouped_allreduce_async_(tensors, op=hvd.Sum)) == tensors
    _is(tensors[4], [size * (size - 1) / 2] * 5)
    mixed = hvd.grouped_allreduce(
        [_full((3,), 1.5), _full((2,), 2, torch.int64), _full((1,), 0.5, torch.float16)], op=hvd.Sum
    )
    assert [it.dtype for it in mixed] == [torch.float32, torch.int64, torch.float16] and mixed[1].tolist() == [
        2 * size
    ] * 2
    both = hvd.grouped_allgather([_full((rank + 1,), float(rank)), _full((1, 2), rank, torch.int64)])
    assert both[0].numel() == size * (size + 1) // 2 and both[1][:, 0].tolist() == [*range(size)]


def handles(rank, size):
    """Many at once, named in another order on each rank, and waited for in the reverse one; on
    GPUs and on the host side by side.
    """
    order = [*range(40)] if rank % 2 else [*reversed(range(40))]
    begun = {
        number: hvd.allreduce_async(
            _full((1000,), float(number)) if number % 4 else torch.full((1000,), float(number)), name=f"many.{number}"
        )
        for number in order
    }
    for number in range(40):
        got = hvd.synchronize(begun[number])
        assert got.device.type == (DEVICE.type if number % 4 else "cpu") and got[0].item() == number == got[-1].item()
    # Results are let go of at once, while operations that were named before are still on their way.
    sums = []
    for turn in range(30):
        waiting = hvd.allreduce_async(_full((50_000,), float(turn)), op=hvd.Sum, name=f"waiting.{turn}")
        gathered = hvd.allgather(_full((50_000,), float(turn)), name=f"gathered.{turn}")
        sums.append(gathered.double().sum() / size)
        del gathered
        sums.append(hvd.synchronize(waiting).double().sum() / size)
    assert [it.item() for it in sums] == [50_000.0 * (number // 2) for number in range(60)]


def optimizer(rank, size):
    """Without compression and with fp16 on the wire: as one process with all samples."""
    inputs, targets = batches(size)
    for compression, tolerance in ((hvd.Compression.none, 1e-5), (hvd.Compression.fp16, 5e-3)):
        wanted, net = network(), network(seed=1 + rank)
        plain = torch.optim.SGD(wanted.parameters(), lr=0.2, momentum=0.9)
        hvd.broadcast_parameters(net.state_dict(), 0)
        distributed = hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9),
            named_parameters=net.named_parameters(),
            compression=compression,
        )
        for _ in range(4):
            for model, stepper, x, y in (
                (wanted, plain, inputs, targets),
                (net, distributed, inputs[rank], targets[rank]),
            ):
                stepper.zero_grad()
                (model(x) - y).square().mean().backward()
                stepper.step()
        same_weights(net, wanted, tolerance)
        weights = torch.cat([it.detach().flatten() for it in net.parameters()])
        gathered = hvd.allgather(weights.view(1, -1))
        assert all(torch.equal(it, gathered[0]) for it in gathered)


def large_batches(rank, size):
    """`backward_passes_per_step` with a GradScaler: a step that overflows on one rank is skipped
    on all.
    """
    inputs, targets = batches(2 * size)
    wanted, net = network(), network()
    plain = torch.optim.SGD(wanted.parameters(), lr=0.2)
    distributed = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.2), named_parameters=net.named_parameters(), backward_passes_per_step=2
    )
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=256.0, growth_interval=2)
    scales = []
    for step in range(4):
        if step != 1:
            plain.zero_grad()
            (wanted(inputs) - targets).square().mean().backward()
            plain.step()
        distributed.zero_grad()
        for number in (2 * rank, 2 * rank + 1):
            overflow = torch.inf if step == 1 and number == 0 else 0.5
            scaler.scale((net(inputs[number]) - targets[number]).square().mean() * overflow).backward()
        distributed.synchronize()
        scaler.unscale_(distributed)
        with distributed.skip_synchronize():
            scaler.step(distributed)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [256.0, 128.0, 128.0, 256.0], scales
    same_weights(net, wanted, 1e-4)


def batch_norm(rank, size):
    """Statistics and gradients of all ranks' samples."""
    torch.manual_seed(4)
    whole = torch.randn(size, 6, 3, 5, 5, device=DEVICE) * 2 + 1
    wanted, sync = torch.nn.BatchNorm2d(3).to(DEVICE), hvd.SyncBatchNorm(3).to(DEVICE)
    x, own = whole.flatten(0, 1).requires_grad_(), whole[rank].clone().requires_grad_()
    weights = torch.randn(size, 6, 3, 5, 5, device=DEVICE)
    y, mine = wanted(x), sync(own)
    (y * weights.flatten(0, 1)).sum().backward()
    (mine * weights[rank]).sum().backward()
    near(mine.detach(), y.detach().view(weights.shape)[rank], 1e-4)
    near(own.grad, x.grad.view(weights.shape)[rank], 1e-4)
    near(sync.running_mean, wanted.running_mean, 1e-5)
    near(sync.running_var, wanted.running_var, 1e-4)
    near(hvd.allreduce(sync.weight.grad, op=hvd.Sum), wanted.weight.grad, 1e-3)
    assert sync.running_mean.device == own.grad.device == DEVICE


def state(rank, size):
    """Parameters and an optimizer's state are rank 0's everywhere, where they were."""
    net = network(seed=1 + rank)
    adam = torch.optim.Adam(net.parameters(), lr=0.01 * (rank + 1))
    net(_full((2, 12), 1.0 + rank)).sum().backward()
    adam.step()
    hvd.broadcast_parameters(net.state_dict(), 0)
    hvd.broadcast_optimizer_state(adam, 0)
    assert adam.param_groups[0]["lr"] == 0.01
    for it in (*net.parameters(), *(adam.state[parameter]["exp_avg"] for parameter in net.parameters())):
        assert it.device == DEVICE
        gathered = hvd.allgather(it.detach().reshape(1, -1))
        assert all(torch.equal(row, gathered[0]) for row in gathered)
    assert hvd.broadcast_object({"rank": rank}, size - 1) == {"rank": size - 1}


def kernels_before_and_after(rank, size):
    """An operation waits for the kernels that make its input, and later kernels wait for its
    result, on any stream that asks for it.
    """
    for turn in range(3):
        late = torch.zeros(1_000_000, device=DEVICE)
        sleep()
        late.fill_(rank + 1.0)
        after = hvd.allreduce(late, op=hvd.Sum, name=f"late.{turn}") * 2
        gathered = hvd.allgather(late, name=f"late rows.{turn}") * 2
        assert torch.equal(after, torch.full_like(after, size * (size + 1.0)))
        assert gathered.view(size, -1)[:, -1].tolist() == [2.0 * (other + 1) for other in range(size)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        late = torch.zeros(1_000_000, device=DEVICE)
        sleep()
        late.fill_(1.0)
        hvd.allreduce_(late, op=hvd.Sum, name="beside")
        assert late.sum().item() == 1_000_000 * size
