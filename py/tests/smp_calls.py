"""What the ranks of test_smp.py check: calls one by one."""

import os
import re
import tempfile
import time
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from smp_training import alone, data, init, mlp, near, same, together, train_step, tree
from torch import nn

import smdistributed.modelparallel
import smdistributed.modelparallel.torch as smp
from shoal.parallel import schedule
from smdistributed.modelparallel.torch import config
from smdistributed.modelparallel.torch.exceptions import (
    MicrobatchError,
    SMPConfigError,
    SMPRuntimeError,
    StepOutputError,
)


@contextmanager
def raises(kind, match=""):
    """`pytest.raises`, which the ranks' interpreter may not have."""
    found = SimpleNamespace(value=None)
    try:
        yield found
    except kind as error:
        found.value = error
        assert re.search(match, str(error)), (match, str(error))
        return
    raise AssertionError(f"{kind} was not raised")


WRONG = [
    ({"pipelin": "simple"}, "pipelin", ["pipeline"]),
    ({"partitions": 0}, "pipeline_parallel_degree", [1]),
    ({"microbatches": "many"}, "microbatches", [1]),
    ({"microbatches": 2.5}, "microbatches", [2, 3]),
    ({"pipeline": "interleave"}, "pipeline", ["interleaved"]),
    ({"placement_strategy": "DPX"}, "placement_strategy", None),
    ({"tensor_parallel_degree": 2}, "ddp", [True]),
    ({"ddp_dist_backend": "nccl"}, "ddp", [True]),
    ({"auto_partition": False, "partitions": 2}, "default_partition", [0]),
    ({"default_partition": 3, "partitions": 2}, "default_partition", [1]),
    ({"memory_weight": 1.5}, "memory_weight", [1.0]),
    ({"horovod": True, "ddp": True}, "horovod", [False]),
    ({"fp16": True, "bf16": True}, "bf16", [False]),
    ({"sharded_data_parallel_degree": 2, "partitions": 2}, "sharded_data_parallel_degree", [1]),
    ({"sharded_data_parallel_degree": 2, "shard_optimizer_state": True}, "shard_optimizer_state", [False]),
    ({"ddp": "perhaps"}, "ddp", [True, False]),
    ({"partitions": 2, "pipeline_parallel_degree": 4}, "pipeline_parallel_degree", [2]),
]


def configuration(rank, size):
    """Wrong keys are named, with the nearest that work; the launcher wins; defaults are those of
    the documentation.
    """
    for given, field, nearest in WRONG:
        with raises(SMPConfigError) as error:
            config.read(given)
        assert error.value.field == field and field in str(error.value), (given, str(error.value))
        assert nearest is None or error.value.nearest == nearest, (given, error.value.nearest)
    for world, given, field in (
        (4, {"partitions": 3}, "pipeline_parallel_degree"),
        (4, {"tensor_parallel_degree": 3, "ddp": True}, "tensor_parallel_degree"),
    ):
        with raises(SMPConfigError) as error:
            config.read(given).mesh(world)
        assert error.value.field == field and error.value.nearest == [2, 4], error.value
    with raises(SMPConfigError) as error:
        config.read({"sharded_data_parallel_degree": 3}).mesh(4)
    assert error.value.nearest == [2, 4]
    plain = config.read({})
    assert (plain.pipeline, plain.active_microbatches, plain.memory_weight, plain.microbatches) == (
        "interleaved",
        3,
        0.8,
        1,
    )
    assert config.read({"partitions": "2", "ddp": "True", "optimize": "speed"}).memory_weight == 0.2
    assert config.read({"microbatches": 2}, {"microbatches": 4}).microbatches == 4
    assert smp.__version__ == smdistributed.modelparallel.__version__ == "1.15.0"


def objects(rank, size):
    """Groups, ranks and objects between them."""
    init(partitions=2, placement_strategy="spread")
    assert (smp.rank(), smp.size(), smp.pp_rank(), smp.mp_rank(), smp.dp_rank(), smp.dp_size()) == (
        rank,
        2,
        rank,
        rank,
        0,
        1,
    )
    assert (
        smp.is_initialized() and not smp.is_tracing() and smp.get_mp_group() == [0, 1] and smp.get_dp_group() == [rank]
    )
    with raises(SMPRuntimeError, match="ddp"):
        smp.get_dp_process_group()
    assert smp.allgather({"rank": rank}, smp.CommGroup.PP_GROUP) == [{"rank": 0}, {"rank": 1}]
    if rank == 0:
        smp.broadcast(["to all"], smp.MP_GROUP)
        smp.send({"x": torch.ones(3)}, 1, smp.RankType.PP_RANK)
        assert smp.recv_from(1, rank_type=smp.PP_RANK) == "back" * 5000
    else:
        assert smp.recv_from(0, smp.RankType.MP_RANK) == ["to all"]
        assert smp.recv_from(0)["x"].tolist() == [1, 1, 1]
        smp.send("back" * 5000, 0, smp.RankType.PP_RANK)
    for barrier in (smp.barrier, smp.mp_barrier, smp.dp_barrier):
        barrier()
    with raises(SMPRuntimeError, match="already"):
        smp.init()


class Pair(tuple):
    """A tuple of somebody's, which is made in another way than tuples are."""

    def __new__(cls, both):
        first, second = both
        return super().__new__(cls, (first, second))


def steps(rank, size):
    """What is split, and what comes back."""
    for stages in (1, 2):
        init(pipeline_parallel_degree=stages, microbatches=4)
        model = smp.DistributedModel(tree())

        class Sliced:
            def __init__(self, values):
                self.values = values

            def smp_slice(self, count, micro, axis):
                return Sliced(self.values[micro::count])

        @smp.step(non_split_inputs=["whole"], input_split_axes={"turned": 1})
        def step(model, batch, whole, turned, sliced, number=1):
            with torch.no_grad():
                output = model(batch["x"])
            assert whole.shape == (8,) and turned.shape == (3, 2) and len(sliced.values) == 2 and number == 7
            rest = {
                "n": number,
                "deep": [output["sum"].mean()],
                "shape": batch["x"].shape,
                "own": Pair((batch["y"], 1)),
            }
            return output, batch["y"], rest, None

        x, whole = torch.randn(8, 12), torch.arange(8.0)
        output, y, rest, nothing = step(
            model, {"x": x, "y": torch.arange(8)}, whole, torch.ones(3, 8), Sliced(list(range(8))), number=7
        )
        assert (
            isinstance(output["logits"], smp.StepOutput)
            and output["logits"].concat().shape == (8, 3)
            and len(output["sum"].outputs) == 4
        )
        assert y.stack().shape == (4, 2) and y.reduce_sum().tolist() == [12, 16] and y.reduce_mean().tolist() == [3, 4]
        assert (
            rest["shape"] == [torch.Size((2, 12))] * 4
            and rest["own"][0].stack().shape == (4, 2)
            and rest["own"][1] == [1] * 4
        )
        assert rest["n"] == [7] * 4 and rest["deep"][0].stack().shape == (4,) and nothing is None
        with torch.no_grad():
            torch.manual_seed(1)
            torch.testing.assert_close(output["logits"].concat(), tree()(x)["logits"])
        with raises(StepOutputError):
            rest["deep"][0].concat()
        with raises(MicrobatchError, match="4 microbatches do not divide.*8 or 12"):
            step(
                model,
                {"x": torch.randn(9, 12), "y": torch.arange(8)},
                whole,
                torch.ones(3, 8),
                Sliced(list(range(8))),
                number=7,
            )
        if stages == 2:
            with raises(SMPRuntimeError, match="smp.step"):
                model(x)


class Echo(nn.Module):
    """Gives a number back beside what another stage has computed."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x, factor):
        return self.second(self.first(x) * factor), factor


def numbers(rank, size):
    """Numbers among the arguments are those of this call, also where the outputs are expected as
    they were before.
    """
    init(partitions=2, microbatches=2, auto_partition=False, default_partition=0)
    net = Echo()
    smp.set_partition(net.second, 1)
    model = smp.DistributedModel(net)
    model.eval()

    @smp.step
    def predict(model, x, factor):
        output, echoed = model(x, factor)
        return output, echoed, output * echoed

    x = torch.randn(4, 4)
    for factor in (1, 3, 5.0):
        with torch.no_grad():
            output, echoed, scaled = predict(model, x, factor)
        assert echoed == [factor] * 2, (echoed, factor)
        torch.testing.assert_close(scaled.concat(), output.concat() * factor)


class Slow(nn.Module):
    """Takes its time in both directions."""

    def __init__(self, seconds):
        super().__init__()
        self.linear, self.seconds = nn.Linear(4, 4), seconds

    def forward(self, x):
        time.sleep(self.seconds)
        x = self.linear(x)
        if x.requires_grad:
            x.register_hook(lambda grad: time.sleep(2 * self.seconds))
        return x


def bubble(rank, size):
    """Ranks are idle as long as the schedule says, within 5 points, in a step in which nobody
    else has the cores.
    """
    for kind, name in (("simple", "gpipe"), ("interleaved", "dynamic")):
        init(partitions=2, microbatches=8, pipeline=kind, auto_partition=False, default_partition=0)
        net = nn.Sequential(Slow(0.02), Slow(0.02))
        smp.set_partition(net[1], 1)
        model = smp.DistributedModel(net)
        opt = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1))
        wanted = schedule(name, 2, 8, active=4 if name == "dynamic" else None).check(forward=1, input=1, weight=1).idle
        shares = []
        # The first step learns.
        while len(shares) < 2 or abs(shares[-1] - wanted) > 0.05:
            assert len(shares) < 16, (kind, shares, wanted)
            opt.zero_grad()
            smp.barrier()
            train_step(model, torch.randn(32, 4), torch.randint(0, 4, (32,)))
            begin = min(smp.allgather(min(it[2] for it in model.timeline)))
            end = max(smp.allgather(max(it[3] for it in model.timeline)))
            busy = sum(smp.allgather(sum(it[3] - it[2] for it in model.timeline)))
            shares.append(1 - busy / (2 * (end - begin)))


def scratch():
    """A directory of all ranks."""
    folder = tempfile.mkdtemp() if smp.rank() == 0 else None
    return smp.allgather(folder)[0]


def checkpoints(rank, size):
    """Saved after two steps and resumed, training ends as if it had not stopped: on the same
    degrees and, whole, on others.
    """
    kinds = [
        {"pipeline_parallel_degree": 2, "microbatches": 2},
        {"ddp": True},
        {"ddp": True, "shard_optimizer_state": True},
        {"ddp": True, "sharded_data_parallel_degree": 2, "sdp_gradient_clipping": 0.0},
        {"ddp": True, "fp16": True},
    ]

    def train(model, opt, begin, end):
        xs, ys = data()
        for x, y in list(zip(xs[:, 0], ys[:, 0]))[begin:end]:
            # Replicas have the same samples, so that all layouts train alike.
            opt.zero_grad()
            train_step(model, x.half() if smp.state.cfg.fp16 else x, y)
            opt.step()

    def make():
        model = smp.DistributedModel(tree())
        return model, smp.DistributedOptimizer(torch.optim.Adam(model.parameters(), 0.01), static_loss_scale=128.0)

    wanted = None
    for saved in kinds:
        init(**saved)
        model, opt = make()
        folder = scratch()
        train(model, opt, 0, 2)
        smp.save_checkpoint(folder, "two", partial=True, user_content={"step": 2})
        smp.save_checkpoint(folder, "three", partial=True, num_kept_partial_checkpoints=1, user_content={"step": 2})
        smp.save_checkpoint(folder, "whole", partial=False, model=model, optimizer=opt, user_content={"step": 2})
        assert sorted(it for it in os.listdir(folder) if it.endswith("_partial")) == ["three_partial"]
        train(model, opt, 2, 4)
        own = model.state_dict()
        if not saved.get("fp16"):
            wanted = wanted or own
            for name, it in own.items():
                torch.testing.assert_close(it, wanted[name], atol=1e-4, rtol=1e-4)
        init(**saved)
        model, opt = make()
        assert smp.resume_from_checkpoint(folder, tag="three") == {"step": 2}
        train(model, opt, 2, 4)
        for name, it in model.state_dict().items():
            torch.testing.assert_close(it, own[name])
        for other in [kinds[(kinds.index(saved) + 1) % 4]] if not saved.get("fp16") else []:
            init(**other)
            model, opt = make()
            assert smp.resume_from_checkpoint(folder, partial=False) == {"step": 2}
            train(model, opt, 2, 4)
            for name, it in model.state_dict().items():
                torch.testing.assert_close(it, own[name], atol=1e-4, rtol=1e-4)
        if saved.get("pipeline_parallel_degree"):
            init(ddp=True)
            make()
            with raises(SMPRuntimeError, match="pipeline_parallel_degree 2.*full checkpoint"):
                smp.resume_from_checkpoint(folder, tag="three")


def scaler(rank, size):
    """A gradient that is not finite on one stage skips the step on both."""
    init(partitions=2, microbatches=2)
    model = smp.DistributedModel(mlp())
    opt = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1))
    amp = smp.amp.GradScaler(init_scale=4.0)

    @smp.step
    def step(model, amp, x, y):
        loss = nn.functional.cross_entropy(model(x), y)
        model.backward(amp.scale(loss))
        return loss

    for bad in (False, True, False):
        opt.zero_grad()
        step(model, amp, torch.randn(8, 12), torch.randint(0, 3, (8,)))
        if bad and rank == 1:
            next(model.local_parameters()).grad.fill_(float("inf"))
        before = [it.detach().clone() for it in model.local_parameters()]
        amp.step(opt)
        amp.update()
        moved = any(not torch.equal(one, other) for one, other in zip(before, model.local_parameters()))
        assert moved != bad
    assert amp.get_scale() == 2.0 and set(smp.allgather(amp.get_scale())) == {2.0}


def translated(rank, size):
    """GPT-2's weights there and back."""
    from smdistributed.modelparallel.torch.nn.huggingface import gpt2

    init(tensor_parallel_degree=2, ddp=True)
    model = smp.DistributedModel(
        smp.nn.DistributedTransformerLMHead(
            2,
            2,
            8,
            16,
            32,
            vocab_size=20,
            num_positions=8,
            causal_mask_size=8,
            pre_layernorm=True,
            post_layernorm=False,
        )
    )
    whole = model.state_dict()
    theirs = gpt2.translate_state_dict_to_hf_gpt2(whole, 8)
    assert theirs["transformer.h.1.attn.c_attn.weight"].shape == (16, 48) and theirs["lm_head.weight"].shape == (20, 16)
    back = gpt2.translate_hf_state_dict_to_smdistributed(theirs, 8)
    assert set(back) == set(whole)
    for name, it in whole.items():
        torch.testing.assert_close(back[name], it)
    model.load_state_dict(back)
    with raises(ImportError, match="gpt2"):
        import smdistributed.modelparallel.torch.nn.huggingface.bert  # noqa: F401
    with raises(ImportError, match="horovod.tensorflow"):
        import smdistributed.modelparallel.tensorflow  # noqa: F401


def hooks(rank, size):
    """Communication hooks, several passes, norms over parts, names of parameters, measured
    partitions.
    """
    init(ddp=True, microbatches=2)
    wanted, parameters = alone(mlp, 2, lambda it: torch.optim.SGD(it, 0.1))
    calls = []

    def hook(group, bucket):
        calls.append(bucket.index())
        work = torch.distributed.all_reduce(bucket.buffer(), group=group, async_op=True)
        # Over ranks and over microbatches.
        return work.get_future().then(lambda it: it.value()[0] / 4)

    model = smp.DistributedModel(mlp())
    model.register_comm_hook(smp.get_dp_process_group(), hook)
    opt = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1))
    xs, ys = data(2)
    for x, y in zip(xs[:, rank], ys[:, rank]):
        opt.zero_grad()
        train_step(model, x, y)
        opt.step()
    assert calls
    same(model, parameters)
    assert {name for name, _ in model.named_parameters()} == set(parameters)

    init(ddp=True)
    model = smp.DistributedModel(mlp(), backward_passes_per_step=2)
    for x, y in zip(xs[:2, rank], ys[:2, rank]):
        train_step(model, x, y)
    net = mlp()
    for x, y in zip(xs[:2], ys[:2]):
        nn.functional.cross_entropy(net(x.flatten(0, 1)), y.flatten()).backward()
    for one, other in zip(model.parameters(), net.parameters()):
        torch.testing.assert_close(one.grad, other.grad)

    init(partitions=2, microbatches=2)
    wanted, parameters = alone(tree, clip=0.3)
    losses, model, _ = together(tree, clip=0.3, trace_execution_times=True, trace_memory_usage=True)
    near(losses, wanted)
    same(model, parameters)
