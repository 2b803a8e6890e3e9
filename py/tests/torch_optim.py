"""What the ranks of test_torch_large_batch.py check of `shoal.torch.optim`: against the formulas
of shoal.parallel on lists.
"""

import pickle
from copy import deepcopy

import torch
from torch import nn

from shoal.comm import ConfigError
from shoal.parallel import Invalid, Rate, lamb_step, lars_step
from shoal.torch import LargeBatch
from shoal.torch.optim import LAMB, LARS, Schedule, cosine, layers, polynomial, steps


def network():
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(7, 5), nn.LayerNorm(5), nn.Linear(5, 3))
    # A layer of zeros has the ratio 1.
    nn.init.zeros_(net[2].weight)
    return net


def gradients(net, step):
    generator = torch.Generator().manual_seed(step)
    for it in net.parameters():
        it.grad = torch.randn(it.shape, generator=generator)


def near(parameter, values):
    torch.testing.assert_close(parameter.detach().flatten(), torch.tensor(values), atol=1e-6, rtol=1e-5)


def lars(rank, size):
    """Layers by the formula; vectors as momentum without decay; a group that says so is treated
    like them.
    """
    vectors = {"0.bias", "1.weight", "1.bias", "2.bias"}
    for make, names in (
        (nn.Module.parameters, vectors),
        (layers, vectors),
        (lambda net: layers(net, ["^2"]), vectors | {"2.weight"}),
    ):
        net = network()
        optimizer = LARS(make(net), lr=0.3, momentum=0.8, weight_decay=0.01, trust=0.02)
        expected = {name: (it.flatten().tolist(), [0.0] * it.numel()) for name, it in net.named_parameters()}
        for step in range(4):
            gradients(net, step)
            optimizer.step()
            for name, it in net.named_parameters():
                gradient = it.grad.flatten().tolist()
                weights, velocity = expected[name]
                if name in names:
                    velocity = [0.8 * v + 0.3 * g for v, g in zip(velocity, gradient)]
                    expected[name] = [w - v for w, v in zip(weights, velocity)], velocity
                else:
                    expected[name] = lars_step(0.3, weights, gradient, velocity, momentum=0.8, decay=0.01, trust=0.02)
                near(it, expected[name][0])


def lamb(rank, size):
    """Layers by the formula; vectors as Adam."""
    for highest in (None, 0.5):
        net, adam = network(), network()
        optimizer = LAMB(net.parameters(), lr=0.05, weight_decay=0.02, highest=highest)
        reference = torch.optim.Adam(adam.parameters(), lr=0.05, eps=1e-6)
        expected = {
            name: (it.flatten().tolist(), [0.0] * it.numel(), [0.0] * it.numel()) for name, it in net.named_parameters()
        }
        for step in range(4):
            gradients(net, step)
            gradients(adam, step)
            optimizer.step()
            reference.step()
            for (name, it), other in zip(net.named_parameters(), adam.parameters(), strict=True):
                if it.ndim == 1:
                    torch.testing.assert_close(it, other, atol=1e-6, rtol=1e-5)
                else:
                    weights, first, second = expected[name]
                    expected[name] = lamb_step(
                        0.05,
                        step + 1,
                        weights,
                        it.grad.flatten().tolist(),
                        (first, second),
                        decay=0.02,
                        highest=highest,
                    )
                    near(it, expected[name][0])
        # A checkpoint goes on as the training did.
        copy = network()
        copy.load_state_dict(net.state_dict())
        again = LAMB(copy.parameters(), lr=0.05, weight_decay=0.02, highest=highest)
        again.load_state_dict(deepcopy(optimizer.state_dict()))
        for one, other in ((net, optimizer), (copy, again)):
            gradients(one, 9)
            other.step()
        for one, other in zip(net.parameters(), copy.parameters(), strict=True):
            assert torch.equal(one, other)


def schedules(rank, size):
    """Rates are those of shoal.parallel, per group and in steps of the optimizer, of a large
    batch, too.
    """
    for decay in (None, steps([4, 8], 0.5), polynomial(10), cosine(12, end=0.1)):
        net = network()
        optimizer = LARS([{"params": [net[0].weight]}, {"params": [net[2].weight], "lr": 0.02}], lr=0.1)
        scheduler = Schedule(optimizer, times=4, warmup=3, decay=decay, momentum_correction=True)
        rates = [Rate(base, times=4, warmup=3, decay=decay) for base in (0.1, 0.02)]
        for step in range(14):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                assert (
                    abs(group["lr"] - rate(step)) < 1e-12
                    and abs(group["correction"] - rate.momentum_correction(step)) < 1e-12
                )
            gradients(net, step)
            optimizer.step()
            scheduler.step()
        state = scheduler.state_dict()
        pickle.dumps(state)
        other = Schedule(
            LARS([{"params": [net[0].weight]}, {"params": [net[2].weight], "lr": 0.02}], lr=0.1),
            times=4,
            warmup=3,
            decay=decay,
        )
        other.load_state_dict(state)
        other.step()
        assert abs(other.get_last_lr()[0] - rates[0](15)) < 1e-12
    net = network()
    optimizer = LargeBatch(LARS(net.parameters(), lr=0.1), 3 * size)
    scheduler = Schedule(optimizer, times=3, warmup=4)
    rate = Rate(0.1, times=3, warmup=4)
    for number in range(15):
        gradients(net, number) if number % 3 == 0 else None
        optimizer.step()
        scheduler.step()
        assert abs(optimizer.param_groups[0]["lr"] - rate((number + 1) // 3)) < 1e-12
    for kind, call in (
        (ConfigError, lambda: Schedule(torch.optim.SGD(net.parameters(), lr=1.0), momentum_correction=True)),
        (Invalid, lambda: Schedule(optimizer, times=-1)),
        (ConfigError, lambda: LARS(net.parameters(), lr=-1.0)),
        (ConfigError, lambda: LAMB(net.parameters(), lr="1e-3")),
        (ConfigError, lambda: layers(net, exclude="[")),
        (ConfigError, lambda: LAMB(net.parameters(), betas=(0.9, 1.0))),
    ):
        try:
            call()
        except kind:
            continue
        raise AssertionError("what cannot be was not refused")
