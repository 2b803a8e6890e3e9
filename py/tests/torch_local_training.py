"""What the ranks of test_torch_large_batch.py check of `LocalTraining`: against the formulas of
shoal.parallel on lists, and what is sent.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from shoal.comm import ConfigError
from shoal.parallel import Invalid, Outer
from shoal.torch import LocalTraining


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))


def batch(rank, step):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    inputs = torch.randn(8, 6, generator=generator)
    return inputs, inputs.sum(1, keepdim=True).sin()


def loss_of(net, rank, step):
    inputs, labels = batch(rank, step)
    return nn.functional.mse_loss(net(inputs), labels)


def flat(net):
    return torch.cat([it.detach().flatten() for it in net.parameters()])


def run(rank, steps, seed=None, finish=True, **options):
    """Weights of this rank after so many steps."""
    net = network()
    if seed is not None:
        torch.manual_seed(seed)
        for it in net.parameters():
            nn.init.normal_(it, std=0.3)
    local = LocalTraining(net, torch.optim.SGD(net.parameters(), lr=0.1), **options)
    for step in range(steps):
        local.zero_grad()
        loss_of(net, rank, step).backward()
        local.step()
    if finish:
        local.finish()
    return net, local


def same_everywhere(net):
    every = [torch.empty_like(flat(net)) for _ in range(dist.get_world_size())]
    dist.all_gather(every, flat(net))
    return all(torch.equal(it, every[0]) for it in every)


def local_sgd(rank, size):
    """Averaging weights after each step of SGD is averaging gradients; so is the synchronous
    beginning; between meetings ranks differ.
    """
    net = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(net, rank, step).backward()
        optimizer.step()
    for options in ({"every": 1}, {"every": 7, "synchronous": 4}):
        mine, local = run(rank, 4, method="post_local_sgd", seed=None if rank == 0 else rank, **options)
        torch.testing.assert_close(flat(mine), flat(net))
        assert local.wire_bytes == local.plain_bytes == 4 * 4 * flat(net).numel() * 2 * (size - 1) // size
    mine, _ = run(rank, 4, method="post_local_sgd", every=3, finish=False)
    assert not same_everywhere(mine)


def diloco(rank, size):
    """Two periods and a rest by the formulas on lists."""
    net = network()
    common, velocity = flat(net).tolist(), [0.0] * flat(net).numel()
    outer = Outer()
    starts = [common] * size
    step = 0
    for length in (5, 5, 3):
        ended = []
        for other in range(size):
            nn.utils.vector_to_parameters(torch.tensor(starts[other]), net.parameters())
            for number in range(step, step + length):
                net.zero_grad()
                loss_of(net, other, number).backward()
                with torch.no_grad():
                    for it in net.parameters():
                        it -= 0.1 * it.grad
            ended.append(flat(net))
        step += length
        common, velocity = outer.step(common, torch.stack(ended).mean(0).tolist(), velocity)
        starts = [common] * size
    mine, local = run(rank, 13, every=5)
    torch.testing.assert_close(flat(mine), torch.tensor(common), atol=1e-5, rtol=1e-5)
    assert same_everywhere(mine)
    assert (
        local.plain_bytes == 13 * 4 * len(common) * 2 * (size - 1) // size
        and local.wire_bytes == local.plain_bytes * 3 // 13
    )
    # A checkpoint between two meetings.
    half, first = run(rank, 7, every=5, finish=False)
    resumed = network()
    second = LocalTraining(resumed, torch.optim.SGD(resumed.parameters(), lr=0.1), every=5)
    resumed.load_state_dict(half.state_dict())
    second.load_state_dict(first.state_dict())
    for step in range(7, 13):
        second.zero_grad()
        loss_of(resumed, rank, step).backward()
        second.step()
    second.finish()
    torch.testing.assert_close(flat(resumed), flat(mine))


def wires(rank, size):
    """bfloat16 and int8 are near, the same bits everywhere, and as many bytes as they say."""
    wanted, _ = run(rank, 20, every=5)
    for wire, tolerance, share in (("bf16", 5e-3, 0.5), ("int8", 2e-2, 0.55)):
        mine, local = run(rank, 20, every=5, wire=wire)
        assert same_everywhere(mine)
        torch.testing.assert_close(flat(mine), flat(wanted), atol=tolerance, rtol=tolerance)
        assert 0.2 < local.wire_bytes / (local.plain_bytes / 5) <= share, (wire, local.wire_bytes, local.plain_bytes)


def streaming(rank, size):
    """Fragments take turns: each once in a period, a half of the bytes at a time; all ranks
    agree in the end, with a delay, too.
    """
    net = network()
    local = LocalTraining(net, torch.optim.SGD(net.parameters(), lr=0.1), every=6, fragments=2)
    sent = []
    for step in range(12):
        before = local.wire_bytes
        local.zero_grad()
        loss_of(net, rank, step).backward()
        local.step()
        sent.append(local.wire_bytes - before)
    assert [step for step, it in enumerate(sent) if it] == [2, 5, 8, 11], sent
    assert sum(sent[:6]) == 4 * flat(net).numel() * 2 * (size - 1) // size and all(it < sum(sent[:6]) for it in sent)
    for wire in ("f32", "int8"):
        mine, local = run(rank, 16, every=6, fragments=2, delay=2, wire=wire)
        assert same_everywhere(mine)
        with torch.no_grad():
            begin, end = (
                torch.tensor([loss_of(it, rank, step).item() for step in range(16)]).mean() for it in (network(), mine)
            )
        assert end < begin
    mine, local = run(rank, 7, every=6, fragments=2, delay=2, finish=False)
    try:
        local.state_dict()
    except ConfigError as error:
        assert "finish" in str(error)
    else:
        raise AssertionError("a state was saved while a fragment was on its way")
    local.finish()


def local_refusals(rank, size):
    """What cannot be is refused with what to do instead."""
    net = network()
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for kind, words, call in (
        (ConfigError, "model.module", lambda: LocalTraining(DistributedDataParallel(net), sgd)),
        (ConfigError, "post_local_sgd", lambda: LocalTraining(net, sgd, "easgd")),
        (ConfigError, "diloco", lambda: LocalTraining(net, sgd, "post_local_sgd", outer_lr=0.5)),
        (ConfigError, "2 layers", lambda: LocalTraining(net, sgd, fragments=3)),
        (ConfigError, "bf16", lambda: LocalTraining(net, sgd, wire="fp8")),
        (Invalid, "period", lambda: LocalTraining(net, sgd, every=0)),
        (Invalid, "momentum", lambda: LocalTraining(net, sgd, outer_momentum=2.0)),
        (Invalid, "delay", lambda: LocalTraining(net, sgd, every=4, delay=4)),
    ):
        try:
            call()
        except kind as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"{words} was not refused")
