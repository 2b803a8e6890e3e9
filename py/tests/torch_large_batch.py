"""What the ranks of test_torch_large_batch.py check: X ranks write what they trained to
$LARGE_BATCH, then Y ranks train as them and compare.
"""

import os
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import shoal.torch
from shoal.comm import ConfigError
from shoal.parallel import Invalid, LossScale
from shoal.torch import LargeBatch, LargeBatchSampler

WORKERS = 4
BATCH = 5
SAMPLES = 147
EPOCHS = 2


def dataset():
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(SAMPLES, 12, generator=generator)
    return TensorDataset(inputs, torch.arange(SAMPLES), inputs.sum(1, keepdim=True).tanh())


def network(norm=False):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(12, 40), nn.BatchNorm1d(40) if norm else nn.Tanh(), nn.Linear(40, 1))
    # The last batches are of two samples: what differs in the last bits of float32 grows in their
    # normalisation.
    return net.double() if norm else net


def saved(name, **values):
    """Of X ranks, rank 0 writes them; Y ranks compare."""
    path = Path(os.environ["LARGE_BATCH"]) / f"{name}.pt"
    if dist.get_world_size() == WORKERS:
        if dist.get_rank() == 0:
            torch.save(values, path)
        return
    wanted = torch.load(path)
    for key, value in values.items():
        if isinstance(value, dict):
            for part in value:
                assert torch.isfinite(value[part]).all(), (name, key, part)
                torch.testing.assert_close(
                    value[part],
                    wanted[key][part],
                    atol=1e-6,
                    rtol=1e-6,
                    msg=lambda text, at=f"{name} {key} {part}": f"{at}: {text}",
                )
        else:
            assert value == wanted[key], (name, key, value, wanted[key])


def loader(samples, simulate, shuffle=True):
    if simulate is None:
        sampler = DistributedSampler(samples, shuffle=shuffle, seed=5)
        return DataLoader(samples, batch_size=BATCH, sampler=sampler), sampler
    sampler = LargeBatchSampler(samples, BATCH, simulate, shuffle=shuffle, seed=5)
    return DataLoader(samples, batch_sampler=sampler), sampler


def train(optimizer, model, simulate, scheduler=None, scaler=None, clip=None, bad=()):
    """Epochs of a script that knows nothing of passes: what it calls once a pass is the same
    everywhere. Gives the scale and the rate of each step of the optimizer.
    """
    batches, sampler = loader(dataset(), simulate)
    dtype = next(model.parameters()).dtype
    trace = []
    steps = 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, index, labels in batches:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs.to(dtype)), labels.to(dtype))
            # A sample whose gradient is not finite in its own mean: the worker that reads it
            # overflows, in one pass.
            if (index[:, None] == torch.tensor(bad)[None]).any() and epoch == 0:
                loss = loss * torch.inf
            if scaler is None:
                loss.backward()
            else:
                scaler.scale(loss).backward()
                if clip:
                    scaler.unscale_(optimizer)
            if clip:
                clip_grad_norm_(model.parameters(), clip)
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
                scaler.update()
            if scheduler is not None:
                scheduler.step()
            done = optimizer.steps if isinstance(optimizer, LargeBatch) else steps + 1
            if done != steps:
                steps = done
                trace.append((scaler.get_scale() if scaler else 0.0, optimizer.param_groups[0]["lr"]))
    return trace


def of(simulate, make=lambda it: torch.optim.SGD(it, lr=0.2, momentum=0.9), ddp=True, norm=False, **options):
    """Model and optimizer of X ranks (simulate is None) or of Y."""
    net = network(norm)
    model = DistributedDataParallel(net, **options.pop("ddp_options", {})) if ddp or simulate is None else net
    optimizer = make(model.parameters())
    if simulate is not None:
        optimizer = LargeBatch(optimizer, simulate, model=model if ddp or norm else None, **options)
    return net, model, optimizer


def simulate_of(size):
    return None if size == WORKERS else WORKERS


def trains_as_many(rank, size):
    """Equal weights after two epochs, with DistributedDataParallel in its forms and without."""
    adam = lambda it: torch.optim.AdamW(it, lr=0.01)  # noqa: E731
    for name, make in {"sgd": {}, "adam": {"make": adam}}.items():
        forms = (
            {"": {}}
            if size == WORKERS
            else {
                "ddp": {},
                "views": {"ddp_options": {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.001}},
                "unused": {"ddp_options": {"find_unused_parameters": True}},
                "plain": {"ddp": False},
            }
        )
        for form in forms.values():
            net, model, optimizer = of(simulate_of(size), **make, **form)
            train(optimizer, model, simulate_of(size))
            saved(name, weights=net.state_dict())


def clips_and_schedules(rank, size):
    """What is not linear acts on complete gradients, and schedules count steps of the optimizer."""
    for form in ({},) if size == WORKERS else ({}, {"ddp": False}):
        net, model, optimizer = of(simulate_of(size), **form)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=40)
        trace = train(optimizer, model, simulate_of(size), scheduler, clip=0.05)
        saved("schedule", weights=net.state_dict(), trace=trace)
        for kind, options in (
            (torch.optim.lr_scheduler.StepLR, {"step_size": 3}),
            (torch.optim.lr_scheduler.CosineAnnealingWarmRestarts, {"T_0": 5}),
        ):
            net, model, optimizer = of(simulate_of(size), **form)
            trace = train(optimizer, model, simulate_of(size), kind(optimizer, **options))
            saved(kind.__name__, weights=net.state_dict(), trace=trace)


def scales_losses(rank, size):
    """Overflows in one pass skip the whole step on all ranks; the trace of scales is that of X
    ranks, and of shoal.parallel's rule.
    """
    bad = (11, 70, 71, 72)
    for clip in (None, 0.05):
        for form in ({},) if size == WORKERS else ({}, {"ddp": False}):
            net, model, optimizer = of(simulate_of(size), **form)
            scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
            trace = train(optimizer, model, simulate_of(size), scaler=scaler, clip=clip, bad=bad)
            assert all(torch.isfinite(it).all() for it in net.parameters())
            saved(f"scales {clip}", weights=net.state_dict(), trace=trace)
    # Which steps overflow, by the samples that they read.
    rule = LossScale(initial=1024.0, interval=3)
    readers = [LargeBatchSampler(dataset(), BATCH, WORKERS, seed=5, ranks=WORKERS, rank=it) for it in range(WORKERS)]
    expected = []
    for epoch in range(EPOCHS):
        for it in readers:
            it.set_epoch(epoch)
        for batches in zip(*readers, strict=True):
            found = epoch == 0 and any(it in bad for batch in batches for it in batch)
            rule.add(not found)
            rule.step(found)
            expected.append(rule.scale)
    assert [scale for scale, _ in trace] == expected and len(set(expected)) > 3, (trace, expected)


def batch_statistics(rank, size):
    """Running statistics are those of rank 0 on X ranks, if that is asked for; else every pass
    moves them.
    """
    options = {"make": lambda it: torch.optim.SGD(it, lr=0.02, momentum=0.9), "norm": True}
    net, model, optimizer = of(simulate_of(size), **options)
    train(optimizer, model, simulate_of(size))
    if size != WORKERS:
        assert int(net[1].num_batches_tracked) == optimizer.passes * optimizer.steps
        net, model, optimizer = of(WORKERS, batch_statistics="worker_0", **options)
        train(optimizer, model, WORKERS)
    # DistributedDataParallel gives rank 0's to all, before the next forward pass only.
    if rank == 0:
        saved("norm", state=net.state_dict())


def samplers(rank, size):
    """Batches are DistributedSampler's of X ranks, whatever the tail. One that reads as another
    number of workers than the optimizer's is told.
    """
    if size != WORKERS:
        for simulate, number in ((WORKERS * 2, 1), (WORKERS, 0)):
            net = network()
            optimizer = LargeBatch(torch.optim.SGD(net.parameters(), lr=0.1), WORKERS)
            read = LargeBatchSampler(dataset(), BATCH, simulate)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for _ in range(2 * optimizer.passes):
                    net(torch.randn(2, 12)).sum().backward()
                    optimizer.step()
            told = [str(it.message) for it in caught if "LargeBatchSampler" in str(it.message)]
            assert len(told) == number and optimizer.steps == 2, (read, told)
    for samples, drop, drop_samples in (
        (147, False, False),
        (147, True, False),
        (147, False, True),
        (160, True, True),
        (3, False, False),
    ):
        numbers = range(samples)
        mine = LargeBatchSampler(
            numbers, 4, 6, ranks=2, rank=rank, seed=2, drop_last=drop, drop_last_samples=drop_samples
        )
        wanted = []
        for worker in range(6):
            sampler = DistributedSampler(numbers, 6, worker, seed=2, drop_last=drop_samples)
            sampler.set_epoch(3)
            wanted.append(list(torch.utils.data.BatchSampler(sampler, 4, drop)))
        mine.set_epoch(3)
        steps = list(zip(*wanted[rank::2], strict=True))
        assert list(mine) == [batch for step in steps for batch in step] and len(mine) == 3 * len(steps)


def hooks_and_no_sync(rank, size):
    """Hooks of the script get buckets that are divided by the passes; its own accumulation stays
    in force within each pass.
    """

    def grads(net, model, optimizer, register=None, twice=False):
        if register:
            register(model)
        for number in range(2):
            torch.manual_seed(10 * rank + number)
            optimizer.zero_grad()
            inputs = torch.randn(6, 12)
            if twice:
                with model.no_sync():
                    (model(inputs[:3]).mean() / 2).backward()
                (model(inputs[3:]).mean() / 2).backward()
            else:
                model(inputs).mean().backward()
            if number == 0:
                optimizer.step()
        optimizer.synchronize()
        return [it.grad.clone() for it in net.parameters()]

    wanted = grads(*of(WORKERS))
    for register in (
        lambda model: model.register_comm_hook(None, shoal.torch.hooks.all_reduce),
        lambda model: model.register_comm_hook(shoal.torch.hooks.Registered(), shoal.torch.hooks.registered),
    ):
        for one, other in zip(grads(*of(WORKERS), register), wanted, strict=True):
            torch.testing.assert_close(one, other)
    model = DistributedDataParallel(network())
    model.register_comm_hook(None, shoal.torch.hooks.all_reduce)
    optimizer = LargeBatch(torch.optim.SGD(model.parameters(), lr=0.2), WORKERS, model=model)
    for one, other in zip(grads(model.module, model, optimizer), wanted, strict=True):
        torch.testing.assert_close(one, other)
    for one, other in zip(grads(*of(WORKERS), twice=True), wanted, strict=True):
        torch.testing.assert_close(one, other)


def refusals(rank, size):
    """What cannot be is refused with what to do instead."""

    def text(kind, call):
        try:
            call()
        except kind as error:
            return str(error)
        raise AssertionError(f"no {kind.__name__}")

    net = network()
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    assert "nearest" in text(Invalid, lambda: LargeBatch(sgd, 5))
    assert "give a torch.optim.Optimizer" in text(ConfigError, lambda: LargeBatch(net, 4))
    assert "parameters are not the model's" in text(
        ConfigError, lambda: LargeBatch(sgd, 4, model=DistributedDataParallel(torch.nn.Linear(2, 2)))
    )
    assert "LBFGS" in text(ConfigError, lambda: LargeBatch(torch.optim.LBFGS(net.parameters()), 4))
    large = LargeBatch(sgd, 4)
    assert "already" in text(ConfigError, lambda: LargeBatch(large, 8))
    net(torch.randn(2, 12)).sum().backward()
    large.step()
    for it in net.parameters():
        it.grad = None
    net(torch.randn(2, 12)).sum().backward()
    assert "first 1 of 2 passes" in text(ConfigError, large.step)
    # Others are left alone: clipping, zero_grad and schedulers of what is in no large batch.
    other = network()
    adam = torch.optim.Adam(other.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(adam, 1)
    other(torch.randn(2, 12)).sum().backward()
    clip_grad_norm_(other.parameters(), 1e-3)
    assert torch.linalg.vector_norm(torch.cat([it.grad.flatten() for it in other.parameters()])) < 1.1e-3
    adam.step()
    scheduler.step()
    assert abs(adam.param_groups[0]["lr"] - 0.1) < 1e-9
    adam.zero_grad()
    assert all(it.grad is None for it in other.parameters())


def plain_scripts(rank, size):
    """A training that is no large batch, in a process that has some: DistributedDataParallel,
    GradScaler, clipping and schedulers do as by hand.
    """
    LargeBatch(torch.optim.SGD(network().parameters(), lr=0.1), WORKERS)
    net, hand = network(), network()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
    scale, good, begun = 64.0, 0, []
    for step in range(8):
        generator = torch.Generator().manual_seed(10 * step + rank)
        inputs = torch.randn(6, 12, generator=generator)
        overflow = torch.inf if step == 3 and rank == 1 else 1.0
        optimizer.zero_grad()
        scaler.scale(model(inputs).square().mean() * overflow).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        # By hand.
        gradients = torch.autograd.grad(hand(inputs).square().mean(), list(hand.parameters()))
        for it in gradients:
            dist.all_reduce(it, dist.ReduceOp.AVG)
        if step == 3:
            scale, good = scale / 2, 0
        else:
            norm = torch.linalg.vector_norm(torch.cat([it.flatten() for it in gradients]))
            with torch.no_grad():
                for it, gradient in zip(hand.parameters(), gradients, strict=True):
                    it -= 0.2 * 0.5 ** (step // 2) * min(1.0, 0.5 / norm) * gradient
            good += 1
            if good == 3:
                scale, good = 2 * scale, 0
        begun.append(
            scaler.get_scale() == scale and abs(optimizer.param_groups[0]["lr"] - 0.2 * 0.5 ** ((step + 1) // 2)) < 1e-9
        )
    assert all(begun), begun
    for one, other in zip(net.parameters(), hand.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def script(rank, size):
    """Unchanged scripts: plain DDP with what is called per pass, then DistributedOptimizer.
    Under SHOAL_SIMULATE_INSTANCES they are started as two ranks.
    """
    net = network()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    train(optimizer, model, None, scheduler, scaler, 0.05, bad=(11, 70))
    saved("script", weights=net.state_dict(), scale=scaler.get_scale(), rate=optimizer.param_groups[0]["lr"])

    net = network()
    optimizer = shoal.torch.DistributedOptimizer(torch.optim.AdamW(net.parameters(), lr=0.01))
    train(optimizer, net, None)
    saved("script with DistributedOptimizer", weights=net.state_dict())
    if size != WORKERS:
        try:
            net(torch.randn(2, 12)).sum().backward()
            torch.optim.SGD(network().parameters(), lr=0.1).step()
        except ConfigError as error:
            assert "DistributedDataParallel" in str(error)
        else:
            raise AssertionError("an exchange that is not known was not refused")
