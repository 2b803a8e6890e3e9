"""What four ranks of test_smp.py check: places, layouts of several degrees, and checkpoints from
one to another.
"""

import os

import torch
from smp_training import alone, init, mlp, near, same, together, tree
from torch import nn

import smdistributed.modelparallel.torch as smp
from shoal.parallel import Mesh


def places(rank, size):
    """Ranks and groups as the words say; the example of the documentation with eight ranks on
    paper.
    """
    mesh = Mesh(8, pipeline=2, tensor=2, placement="cluster")
    assert [mesh.rank(data=1, pipeline=1, tensor=0), mesh.rank(data=0, pipeline=1, tensor=1)] == [6, 3]
    for placement, expected in (("cluster", (2, 0, 1)), ("spread", (0, 1, 2)), ("PTD", (0, 0, 0))):
        init(pipeline_parallel_degree=2, tensor_parallel_degree=2, ddp=True, placement_strategy=placement)
        assert (
            smp.size()
            == 4
            == smp.pp_size() * smp.tp_size() * smp.rdp_size()
            == smp.pp_size() * smp.dp_size()
            == smp.mp_size() * smp.rdp_size()
        )
        word = {"cluster": "DPT", "spread": "TPD"}.get(placement, placement)
        sizes, own = {"D": 1, "P": 2, "T": 2}, {"D": smp.rdp_rank(), "P": smp.pp_rank(), "T": smp.tp_rank()}
        number = 0
        for letter in word:
            number = number * sizes[letter] + own[letter]
        assert number == smp.rank(), (placement, expected)
        assert set(smp.get_tp_group()) <= set(smp.get_dp_group()) and set(smp.get_tp_group()) <= set(smp.get_mp_group())
        assert torch.distributed.get_process_group_ranks(smp.get_dp_process_group()) == smp.get_dp_group()


def layouts(rank, size):
    """Pipelines of four stages, with replicas, with tensor parallelism."""
    for config, make, replicas in (
        ({"pipeline_parallel_degree": 4, "microbatches": 4}, mlp, 1),
        (
            {"pipeline_parallel_degree": 4, "microbatches": 4, "pipeline": "simple", "placement_strategy": "spread"},
            tree,
            1,
        ),
        ({"pipeline_parallel_degree": 2, "microbatches": 2, "ddp": True}, tree, 2),
        ({"pipeline_parallel_degree": 2, "microbatches": 2, "ddp": True, "shard_optimizer_state": True}, mlp, 2),
        ({"sharded_data_parallel_degree": 2, "sdp_gradient_clipping": 0.0, "ddp": True}, mlp, 4),
    ):
        wanted, parameters = alone(make, replicas)
        init(**config)
        losses, model, _ = together(make)
        near(losses, wanted)
        same(model, parameters)
    for prescaled in (False, True):

        def distributed():
            torch.manual_seed(1)
            with smp.tensor_parallelism():
                return nn.Sequential(*(it for _ in range(4) for it in (nn.Linear(12, 12), nn.Tanh())), nn.Linear(12, 3))

        init(ddp=True)
        wanted, parameters = alone(distributed, 1 if prescaled else 2)
        init(
            pipeline_parallel_degree=2,
            tensor_parallel_degree=2,
            microbatches=4,
            ddp=True,
            prescaled_batch=prescaled,
            _match_weights=True,
        )
        if prescaled:
            # All ranks have the samples of one.
            import smp_training

            plain, smp_training.data = (
                smp_training.data,
                lambda ranks=1, plain=smp_training.data: tuple(it.expand(-1, ranks, *it.shape[2:]) for it in plain(1)),
            )
        losses, model, _ = together(distributed)
        if prescaled:
            smp_training.data = plain
        near(losses, wanted)
        same(model, parameters)


def language():
    torch.manual_seed(4)
    return smp.nn.DistributedTransformerLMHead(
        4, 4, 8, 32, 64, vocab_size=50, num_positions=16, causal_mask_size=16, pre_layernorm=True, post_layernorm=False,
        attention_dropout_prob=0.0, hidden_dropout_prob=0.0, embedding_dropout_prob=0.0,
    )  # fmt: skip


IDS = torch.randint(0, 50, (4, 16), generator=torch.Generator().manual_seed(5))


@smp.step
def step(model, ids):
    loss, logits = model((ids, None, None, None, ids))
    model.backward(loss)
    return loss, logits


@smp.step
def predict(model, ids):
    with torch.no_grad():
        return model((ids, None, None, None, None))


def start(**config):
    init(ddp=True, **config)
    model = smp.DistributedModel(language())
    return model, smp.DistributedOptimizer(torch.optim.Adam(model.parameters(), 0.01))


def train(model, opt):
    opt.zero_grad()
    loss = step(model, IDS)[0].reduce_mean().item()
    opt.step()
    return loss


def continues(folder, **config):
    """In this layout the checkpoint predicts as it did where it was saved, and continues as it
    did.
    """
    wanted, losses = torch.load(os.path.join(folder, "wanted.pt"))
    model, opt = start(**config)
    smp.resume_from_checkpoint(folder, partial=False)
    torch.testing.assert_close(predict(model, IDS).concat(), wanted, atol=1e-4, rtol=1e-4)
    near([train(model, opt) for _ in range(2)], losses, 1e-4)


def resharded(rank, size):
    """Saved as (dp 2, tp 2), loaded as pp 4, as dp 4, and as shards on four ranks: equal
    predictions, and equal further training.
    """
    folder = os.environ["SHOAL_TEST_FOLDER"]
    model, opt = start(tensor_parallel_degree=2)
    train(model, opt)
    smp.save_checkpoint(folder, "one", partial=False, model=model, optimizer=opt)
    wanted = predict(model, IDS).concat()
    losses = [train(model, opt) for _ in range(2)]
    if rank == 0:
        torch.save((wanted, losses), os.path.join(folder, "wanted.pt"))
    smp.barrier()
    for other in (
        {"pipeline_parallel_degree": 4, "microbatches": 2},
        {"pipeline_parallel_degree": 2, "tensor_parallel_degree": 2, "microbatches": 2, "prescaled_batch": True},
        {"shard_optimizer_state": True},
        {"sharded_data_parallel_degree": 4, "sdp_gradient_clipping": 0.0},
    ):
        continues(folder, **other)


def on_three(rank, size):
    """What `resharded` has saved, on three ranks: sizes that three does not divide."""
    for other in ({"sharded_data_parallel_degree": 3, "sdp_gradient_clipping": 0.0}, {"shard_optimizer_state": True}):
        continues(os.environ["SHOAL_TEST_FOLDER"], **other)
