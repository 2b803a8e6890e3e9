"""Checks of what trains with `horovod.torch`, each done by all ranks."""

import warnings

import torch
import torch.nn.functional as F

import horovod.torch as hvd
from horovod_expect import raises, warns


def _model(seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def _samples(count, seed=2):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(count, 6, generator=made), torch.randint(0, 3, (count,), generator=made)


def _alone(steps, per_rank, size, rate=0.1, momentum=0.9):
    """Parameters after training on all ranks' samples by one process."""
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum)
    for step in range(steps):
        x, y = _samples(per_rank * size, seed=step)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def _equal(one, other, tolerance=1e-6):
    return all(torch.allclose(a, b, atol=tolerance) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def optimizer(rank, size):
    per_rank = 4
    for more in (
        {},
        {"gradient_predivide_factor": 2.0},
        {"groups": 2},
        {"groups": "lists"},
        {"backward_passes_per_step": 2},
        {"compression": hvd.Compression.fp16},
    ):
        model = _model()
        if more.get("groups") == "lists":
            more["groups"] = [[*model[0].parameters()], [*model[2].parameters()]]
        passes = more.get("backward_passes_per_step", 1)
        wrapped = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), named_parameters=model.named_parameters(), **more
        )
        assert isinstance(wrapped, torch.optim.SGD) and type(wrapped).__name__ == "SGD"
        for step in range(4):
            x, y = _samples(per_rank * size, seed=step)
            wrapped.zero_grad()
            for x_part, y_part in zip(
                x[rank * per_rank : (rank + 1) * per_rank].chunk(passes),
                y[rank * per_rank : (rank + 1) * per_rank].chunk(passes),
                strict=True,
            ):
                (F.cross_entropy(model(x_part), y_part) / passes).backward()
            wrapped.step()
        assert _equal(model, _alone(4, per_rank, size), 1e-2 if "compression" in more else 1e-6), more


def optimizer_rules(rank, size):
    model = _model()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for wrong in (
        {"named_parameters": [("a", it) for it in model.parameters()]},
        {"named_parameters": [("a", next(model.parameters()))]},
        {"named_parameters": [*model.parameters()]},
        {"backward_passes_per_step": 0},
        {"gradient_predivide_factor": 2.0, "op": hvd.Sum},
        {"groups": -1},
        {"groups": [[1]]},
        {"groups": [[model[0].weight], [model[0].weight]]},
    ):
        with raises(ValueError):
            hvd.DistributedOptimizer(sgd, **wrong)
    with warns(DeprecationWarning, match="num_groups"):
        hvd.DistributedOptimizer(torch.optim.SGD(_model().parameters(), lr=0.1), num_groups=2)
    wrapped = hvd.DistributedOptimizer(sgd)
    x, y = _samples(4)
    F.cross_entropy(model(x), y).backward()
    with raises(AssertionError, match="race condition"):
        wrapped.zero_grad()
    with raises(AssertionError, match="backward_passes_per_step times"):
        F.cross_entropy(model(x), y).backward()
    wrapped.synchronize()
    with warns(UserWarning, match="skip_synchronize"):
        wrapped.step()
    wrapped.zero_grad(set_to_none=False)
    # Passes begin anew with another number of them.
    wrapped.set_backward_passes_per_step(2)
    F.cross_entropy(model(x), y).backward()
    with raises(AssertionError, match="race condition"):
        wrapped.zero_grad()
    F.cross_entropy(model(x), y).backward()
    wrapped.synchronize()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with wrapped.skip_synchronize():
            wrapped.step()
    # A closure's gradients are reduced.
    wrapped.set_backward_passes_per_step(1)
    seen = []

    def closure():
        wrapped.zero_grad()
        loss = F.cross_entropy(model(x), y) * (rank + 1)
        loss.backward()
        seen.append(loss)
        return loss

    assert wrapped.step(closure) is seen[0]
    assert len({round(it.sum().item(), 6) for it in hvd.allgather(model[0].weight.detach()).chunk(size)}) == 1


def branches(rank, size):
    """Ranks that use different parts of a model: those not used take part with zeros."""
    one, other = torch.nn.Linear(2, 1, bias=False), torch.nn.Linear(2, 1, bias=False)
    for it in (one, other):
        torch.nn.init.ones_(it.weight)
    named = [("one", one.weight), ("other", other.weight)]
    wrapped = hvd.DistributedOptimizer(torch.optim.SGD([it for _, it in named], lr=1.0), named_parameters=named)
    (one if rank == 0 else other)(torch.ones(1, 2)).sum().backward()
    wrapped.step()
    assert torch.allclose(one.weight, torch.full((1, 2), 1 - 1 / size)) and torch.allclose(
        other.weight, torch.full((1, 2), 1 - (size - 1) / size)
    )


def sparse(rank, size):
    for as_dense in (False, True):
        torch.manual_seed(0)
        embedding = torch.nn.Embedding(6, 2, sparse=True)
        before = embedding.weight.detach().clone()
        wrapped = hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), lr=1.0), sparse_as_dense=as_dense)
        embedding(torch.tensor([rank, 5])).sum().backward()
        wrapped.step()
        expected = before.clone()
        expected[:size] -= 1 / size
        expected[5] -= 1
        assert torch.allclose(embedding.weight, expected), as_dense
    mine = torch.sparse_coo_tensor([[0, rank]], torch.ones(2), (4,))
    found = hvd.sparse_allreduce_async(mine, "sparse", hvd.Sum)().to_dense()
    expected = torch.zeros(4)
    expected[:size] += 1
    expected[0] += size
    assert torch.equal(found, expected)


def adasum_optimizer(rank, size):
    if size != 2:
        return
    model = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    wrapped = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), named_parameters=model.named_parameters(), op=hvd.Adasum
    )
    x = torch.zeros(1, 2)
    x[0, rank] = 1.0
    # The ranks' steps are orthogonal, so that they are added.
    model(x).sum().backward()
    with raises(AssertionError, match="race"):
        wrapped.zero_grad()
    wrapped.step()
    assert torch.allclose(model.weight, torch.full((1, 2), -1.0))
    with raises(AssertionError, match="not supported"):
        with wrapped.skip_synchronize():
            pass


def state(rank, size):
    for kind, options in (
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.Adam, {}),
        (torch.optim.Adagrad, {}),
        (torch.optim.SGD, {}),
    ):
        model = _model(seed=rank)
        made = kind(model.parameters(), lr=0.1 * (rank + 1), **options)
        if rank == 0:
            F.cross_entropy(model(_samples(4)[0]), _samples(4)[1]).backward()
            made.step()
            made.zero_grad()
        if kind is torch.optim.SGD and not options:
            hvd.broadcast_optimizer_state(made, 0)
            assert made.param_groups[0]["lr"] == 0.1 * (rank + 1)
            continue
        before = [it.detach().clone() for it in model.parameters()]
        hvd.broadcast_optimizer_state(made, 0)
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        hvd.broadcast_parameters(model.state_dict(), 0)
        assert made.param_groups[0]["lr"] == 0.1
        for it in model.parameters():
            for value in made.state[it].values():
                if isinstance(value, torch.Tensor):
                    every = hvd.allgather(value.reshape(1, -1).clone())
                    assert torch.equal(every, every[:1].expand_as(every))
    for error, wrong in ((TypeError, {"compression": "fp16"}), (ValueError, {"op": "average"})):
        with raises(error, match="hvd"):
            hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **wrong)
    with raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(model.parameters()), 0)
    for wrong in (model.named_parameters(), 3):
        with raises(ValueError, match="invalid params"):
            hvd.broadcast_parameters(wrong, 0)
    values = [torch.full((2, 3), float(rank)).t(), ("named", torch.tensor(rank))]
    hvd.broadcast_parameters(values, size - 1)
    assert values[0].tolist() == [[size - 1.0] * 2] * 3 and values[1][1].item() == size - 1
    assert hvd.broadcast_object({"rank": rank, "model": _model()}, root_rank=size - 1)["rank"] == size - 1
    assert hvd.allgather_object({"rank": "x" * rank}) == [{"rank": "x" * other} for other in range(size)]


def batch_norm(rank, size):
    torch.manual_seed(0)
    whole = torch.randn(3 * size, 4, 2)
    for kind in ({}, {"momentum": None}, {"affine": False}):
        mine = whole[3 * rank : 3 * rank + 3].clone().requires_grad_()
        all_of_them = whole.clone().requires_grad_()
        ours, reference = hvd.SyncBatchNorm(4, **kind), torch.nn.BatchNorm1d(4, **kind)
        weights = torch.randn(whole.shape)
        out = ours(mine)
        expected = reference(all_of_them)
        (out * weights[3 * rank : 3 * rank + 3]).sum().backward()
        (expected * weights).sum().backward()
        assert torch.allclose(out, expected[3 * rank : 3 * rank + 3], atol=1e-5)
        assert torch.allclose(ours.running_mean, reference.running_mean, atol=1e-6) and torch.allclose(
            ours.running_var, reference.running_var, atol=1e-5
        )
        assert torch.allclose(mine.grad, all_of_them.grad[3 * rank : 3 * rank + 3], atol=1e-5)
        if ours.affine:
            assert torch.allclose(hvd.allreduce(ours.weight.grad, op=hvd.Sum), reference.weight.grad, atol=1e-4)
        ours.eval(), reference.eval()
        assert torch.allclose(ours(mine), reference(mine), atol=1e-5)
    with raises(ValueError, match="2D"):
        hvd.SyncBatchNorm(4)(torch.ones(4))


def again(rank, size):
    """A world after another in the same processes."""
    hvd.shutdown()
    assert not hvd.is_initialized()
    with raises(ValueError, match="hvd.init"):
        hvd.size()
    with raises(ValueError, match="hvd.init"):
        hvd.allreduce(torch.ones(1))
    hvd.init(process_sets=[hvd.ProcessSet([0])])
    assert (hvd.rank(), hvd.size()) == (rank, size)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size
