"""What the ranks of test_smp.py check: training by `smdistributed.modelparallel.torch` against
one process with the same global batch.
"""

import torch
from torch import nn

import smdistributed.modelparallel.torch as smp
from smdistributed.modelparallel.torch import launch

STEPS, BATCH = 4, 8


class Residual(nn.Module):
    """Not sequential: children are called by a forward of its own, and share a sum."""

    def __init__(self, width):
        super().__init__()
        self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x, scale=1.0):
        return x + scale * self.two(self.act(self.one(x)))


class Tree(nn.Module):
    """Blocks in a list, called in a loop, with a parameter of the root's own."""

    def __init__(self, width=12):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(width))
        self.blocks = nn.ModuleList(Residual(width) for _ in range(4))
        self.head = nn.Linear(width, 3)

    def forward(self, x, labels=None):
        x = x + self.shift
        for at, block in enumerate(self.blocks):
            x = block(x, scale=0.5 + at)
        logits = self.head(x)
        return (
            {"logits": logits, "sum": x.sum(-1)}
            if labels is None
            else {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}
        )


def mlp():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(12, 30),
        nn.ReLU(inplace=True),
        nn.Linear(30, 30),
        nn.ReLU(inplace=True),
        nn.Linear(30, 30),
        nn.Tanh(),
        nn.Linear(30, 3),
    )


def tree():
    torch.manual_seed(1)
    return Tree()


def data(ranks=1):
    torch.manual_seed(2)
    return torch.randn(STEPS, ranks, BATCH, 12), torch.randint(0, 3, (STEPS, ranks, BATCH))


def init(**config):
    launch.forget()
    smp.init(config)


def loss_of(model, x, y):
    output = model(x)
    logits = output["logits"] if isinstance(output, dict) else output
    return nn.functional.cross_entropy(logits, y)


@smp.step
def train_step(model, x, y):
    loss = loss_of(model, x, y)
    model.backward(loss)
    return loss


def alone(make, ranks=1, optimizer=lambda it: torch.optim.Adam(it, 0.01), clip=None):
    """Losses and parameters of one process on all data parallel ranks' samples."""
    net = make()
    opt = optimizer(net.parameters())
    losses = []
    xs, ys = data(ranks)
    for x, y in zip(xs, ys):
        opt.zero_grad()
        loss = loss_of(net, x.flatten(0, 1), y.flatten())
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        opt.step()
        losses.append(loss.item())
    return losses, {name: it.detach() for name, it in net.named_parameters()}


def together(
    make,
    optimizer=lambda it: torch.optim.Adam(it, 0.01),
    step=train_step,
    prepare=None,
    clip=None,
    dtype=None,
    **options,
):
    """The same on the ranks of the configuration."""
    model = smp.DistributedModel(make(), **options)
    opt = smp.DistributedOptimizer(optimizer(model.parameters()))
    if prepare:
        prepare(model)
    losses = []
    xs, ys = data(smp.dp_size())
    for x, y in zip(xs[:, smp.dp_rank()], ys[:, smp.dp_rank()]):
        opt.zero_grad()
        loss = step(model, x if dtype is None else x.to(dtype), y).reduce_mean()
        if clip:
            opt.clip_master_grads(clip)
        opt.step()
        losses.append(loss.item())
    mean = [sum(it) / len(it) for it in zip(*smp.allgather(losses, smp.DP_GROUP))]
    return mean, model, opt


def near(got, wanted, tolerance=1e-5):
    assert len(got) == len(wanted), (got, wanted)
    for one, other in zip(got, wanted):
        assert abs(one - other) <= tolerance, (got, wanted)


def same(model, wanted, tolerance=1e-5):
    state = model.state_dict()
    assert set(state) >= set(wanted)
    for name, it in wanted.items():
        torch.testing.assert_close(state[name].float(), it, atol=tolerance, rtol=tolerance)


def pipelines(rank, size):
    """Simple and interleaved, a chain and a tree, partitioned automatically and by hand: as one
    process.
    """
    for make in (mlp, tree):
        wanted, parameters = alone(make)
        for pipeline in ("simple", "interleaved"):
            init(pipeline_parallel_degree=2, microbatches=4, pipeline=pipeline)
            losses, model, _ = together(make)
            near(losses, wanted)
            same(model, parameters)
            own = {name for name, _ in model.local_named_parameters()}
            every = smp.allgather(own, smp.PP_GROUP)
            assert own and not every[0] & every[1] and every[0] | every[1] == set(parameters), every


def by_hand(rank, size):
    """`smp.partition` and `smp.set_partition`, a chain that crosses twice, tuples and shared
    parameters.
    """

    class Hand(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            with smp.partition(1):
                self.late = Residual(12)
            self.early = Residual(12)
            self.head = nn.Linear(12, 3)

        def forward(self, x):
            return self.head(self.late(self.early(x)) + self.early(x))

    init(pipeline_parallel_degree=2, microbatches=2, auto_partition=False, default_partition=0)
    wanted, parameters = alone(Hand)
    losses, model, _ = together(Hand)
    near(losses, wanted)
    same(model, parameters)
    assert {name.split(".")[0] for name, _ in model.local_named_parameters()} == (
        {"late"} if smp.pp_rank() else {"early", "head"}
    )

    def zigzag():
        net = mlp()
        smp.set_partition(net[2], 1)
        smp.set_partition(net[6], 1)
        return net

    init(pipeline_parallel_degree=2, microbatches=4, auto_partition=False, default_partition=0)
    wanted, parameters = alone(zigzag)
    losses, model, _ = together(zigzag)
    near(losses, wanted)
    same(model, parameters)


def data_parallel(rank, size):
    """Averages over ranks, buckets and overlap, several passes, shards of the optimizer's state,
    sharded parameters, clipping.
    """
    for options, config in (
        ({}, {}),
        ({"bucket_cap_mb": 0.001}, {"microbatches": 2}),
        ({"overlapping_allreduce": False}, {"microbatches": 4}),
        ({}, {"shard_optimizer_state": True, "microbatches": 2}),
        ({}, {"sharded_data_parallel_degree": 2, "sdp_gradient_clipping": 0.5, "microbatches": 2}),
        ({}, {"sharded_data_parallel_degree": 2, "sdp_gradient_clipping": 0.0, "sdp_param_persistence_threshold": 10}),
    ):
        for make in (mlp, tree):
            clip = config.get("sdp_gradient_clipping") or None
            wanted, parameters = alone(make, 2, clip=clip)
            init(pipeline_parallel_degree=1, ddp=True, **config)
            losses, model, opt = together(make, **options)
            near(losses, wanted)
            same(model, parameters)
            if config.get("shard_optimizer_state"):
                elements = sum(it.numel() for it in opt.master_params)
                assert elements <= sum(it.numel() for it in parameters.values()) // 2 + 200


def tensor(rank, size):
    """Linear layers, embeddings and transformers in parts: as whole ones, with own and with
    common samples.
    """
    ids = torch.randint(0, 50, (2, 4, 10), generator=torch.Generator().manual_seed(5))
    kinds = dict(
        num_attention_heads=4,
        attention_head_size=8,
        hidden_size=32,
        intermediate_size=64,
        vocab_size=50,
        num_positions=16,
        num_layers=2,
    )
    still = dict(attention_dropout_prob=0.0, hidden_dropout_prob=0.0, embedding_dropout_prob=0.0)

    def language(**more):
        torch.manual_seed(4)
        return smp.nn.DistributedTransformerLMHead(**kinds, **still, causal_mask_size=16, **more)

    @smp.step
    def step(model, ids):
        loss = model((ids, None, None, None, ids))[0]
        model.backward(loss)
        return loss

    def run(tp, prescaled, optimize, **more):
        launch.forget()
        smp.init(
            {
                "tensor_parallel_degree": tp,
                "ddp": True,
                "prescaled_batch": prescaled,
                "optimize": optimize,
                "microbatches": 2,
            }
        )
        model = smp.DistributedModel(language(**more))
        opt = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1))
        losses = []
        for _ in range(3):
            opt.zero_grad()
            batch = ids.flatten(0, 1) if prescaled else ids[smp.dp_rank()]
            losses.append(step(model, batch).reduce_mean().item())
            total = opt.clip_master_grads(1.0)
            opt.step()
        everybody = smp.allgather(losses, smp.DP_GROUP)
        return [sum(it) / len(it) for it in zip(*everybody)], model, total

    for more in ({"pre_layernorm": True, "post_layernorm": False}, {"use_normal_initialization": True}):
        wanted, plain, norm = run(1, False, "memory", **more)
        full = plain.state_dict()
        for prescaled, optimize in ((False, "memory"), (False, "speed"), (True, "speed")):
            losses, model, total = run(2, prescaled, optimize, **more)
            near(losses, wanted, 1e-4)
            assert abs(total - norm) < 1e-3, (total, norm)
            same(model, {name: it for name, it in full.items()}, 1e-3)
            part = dict(model.named_parameters())["transformer.seq_layers.0.attention.query.weight"]
            assert part.shape == (16, 32) and model.is_distributed_parameter(part)


def replaced(rank, size):
    """Modules of torch's become distributed ones; those whose sizes do not divide, or that share
    weights, stay.
    """
    for prescaled in (False, True):
        init(tensor_parallel_degree=2, ddp=True, prescaled_batch=prescaled, _match_weights=True)
        with smp.tensor_parallelism():
            torch.manual_seed(1)
            net = nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 31), nn.Linear(31, 3))
        whole = [it.weight.detach().clone() for it in net if isinstance(it, nn.Linear)]
        model = smp.DistributedModel(net)
        kinds = [type(it).__name__ for it in model.get_module()]
        assert kinds == ["DistributedLinear", "ReLU", "DistributedLinear", "Linear"], kinds
        torch.testing.assert_close(model.state_dict()["0.weight"], whole[0])
        assert model.get_module()[0].weight.shape == (30, 6)
        x = torch.randn(4, 12, generator=torch.Generator().manual_seed(0 if prescaled else rank))
        torch.manual_seed(1)
        same_net = nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 31), nn.Linear(31, 3))
        torch.testing.assert_close(model(x), same_net(x), atol=1e-5, rtol=1e-5)


def half(rank, size):
    """float16 and bfloat16 with masters in float32: near float32; an overflow leaves the step
    out on all ranks.
    """
    for config, tolerance in (
        ({"bf16": True}, 0.05),
        ({"bf16": True, "shard_optimizer_state": True}, 0.05),
        ({"fp16": True}, 0.02),
        ({"fp16": True, "shard_optimizer_state": True}, 0.02),
        ({"fp16": True, "pipeline_parallel_degree": 2, "microbatches": 2}, 0.02),
        ({"bf16": True, "sharded_data_parallel_degree": 2, "sdp_gradient_clipping": 0.0}, 0.05),
    ):
        staged = config.get("pipeline_parallel_degree", 1) > 1
        wanted, _ = alone(mlp, 1 if staged else 2)
        init(ddp=True, **config)
        model = smp.DistributedModel(mlp())
        opt = smp.DistributedOptimizer(
            torch.optim.Adam(model.parameters(), 0.01),
            dynamic_loss_scale=True,
            dynamic_loss_args={"init_scale": 2.0**40, "scale_window": 1000},
        )
        losses, skipped = [], 0
        xs, ys = data(smp.dp_size())
        dtype = torch.float16 if config.get("fp16") else torch.bfloat16
        while len(losses) < STEPS:
            x, y = xs[len(losses), smp.dp_rank()], ys[len(losses), smp.dp_rank()]
            opt.zero_grad()
            loss = train_step(model, x.to(dtype), y).reduce_mean()
            opt.update_master_grads()
            norm = opt.clip_master_grads(100.0)
            opt.step()
            if opt.overflow:
                assert norm == -1.0
                skipped += 1
                assert skipped < 40
                continue
            losses.append(loss.item())
        mean = [sum(it) / len(it) for it in zip(*smp.allgather(losses, smp.DP_GROUP))]
        near(mean, wanted, tolerance)
        assert bool(skipped) == bool(config.get("fp16")), skipped
        assert len(set(smp.allgather(opt.loss_scale))) == 1


def checkpointed(rank, size):
    """Activations that are computed again, and kept on the host; parameters without storage
    until the partition.
    """

    def again(model):
        net = model.get_module()
        if isinstance(net, nn.Sequential):
            smp.set_activation_checkpointing(net, strategy="group_2")
        else:
            for block in net.blocks:
                smp.set_activation_checkpointing(block)

    for make in (mlp, tree):
        wanted, parameters = alone(make)
        for config in (
            {"pipeline_parallel_degree": 2, "microbatches": 2},
            {"pipeline_parallel_degree": 2, "microbatches": 2, "offload_activations": True},
        ):
            init(**config)
            losses, model, _ = together(make, prepare=again)
            near(losses, wanted)
            same(model, parameters)

        def delayed(make=make):
            with smp.delay_param_initialization():
                net = make()
            assert all(it.is_meta for it in net.parameters())
            return net

        init(pipeline_parallel_degree=2, microbatches=2)
        model = smp.DistributedModel(delayed())
        xs, ys = data()
        for x, y in zip(xs[:, 0], ys[:, 0]):
            train_step(model, x, y)
        init(pipeline_parallel_degree=2, microbatches=2)
        torch.manual_seed(1)
        losses, model, _ = together(delayed)
        near(losses, wanted)
        same(model, parameters)
