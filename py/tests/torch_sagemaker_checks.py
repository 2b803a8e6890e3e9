"""What the ranks of test_torch_sagemaker.py check: `torch.sagemaker` against PyTorch without it,
in one process with all samples.
"""

import os
import tempfile
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from tiny_llama import WORDS, Config, Layer, TinyLlama, loss
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, ShardingStrategy, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.sagemaker.delayed_param import DelayedParamIniter
from torch.sagemaker.distributed.checkpoint import state_dict_saver
from torch.sagemaker.grad_norm import clip_grad_norm_
from torch.sagemaker.tensor_parallel.transformer import TransformerLayer

STEPS = 3
NORM = 0.5


def begin(**config):
    """The library as in a new process."""
    tsm.state.__dict__.clear()
    tsm.state.__init__()
    assert not tsm.is_initialized()
    tsm.init(config)
    assert tsm.is_initialized()


@contextmanager
def refused(kind, *words):
    """The block raises this, with these words in its text."""
    try:
        yield
    except kind as error:
        assert all(it in str(error) for it in words), str(error)
        return
    raise AssertionError(f"nothing was raised where {kind.__name__} with {words} was expected")


def llama(tied=False, seed=1):
    torch.manual_seed(seed)
    return TinyLlama(tied)


def batches(ranks):
    torch.manual_seed(2)
    return torch.randint(WORDS, (STEPS, ranks, 3, 7))


def alone(ranks, model=None):
    """Losses, norms and parameters of one process that has all ranks' samples."""
    model = llama() if model is None else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses, norms = [], []
    for tokens in batches(ranks):
        optimizer.zero_grad()
        value = loss(model, tokens.flatten(0, 1))
        value.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), NORM).item())
        optimizer.step()
        losses.append(value.item())
    return losses, norms, {name: it.detach() for name, it in model.state_dict().items()}


def trained(model, rank, ranks, optimizer=None):
    """Losses and norms of all ranks together."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01) if optimizer is None else optimizer
    losses, norms = [], []
    for tokens in batches(ranks)[:, rank]:
        optimizer.zero_grad()
        value = loss(model, tokens)
        value.backward()
        norms.append(float(clip_grad_norm_(model, NORM)))
        optimizer.step()
        mean = value.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        losses.append(mean.item())
    return losses, norms


def near(got, wanted, tolerance=2e-5):
    torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(wanted), atol=tolerance, rtol=tolerance)


def whole(model):
    with FullyShardedDataParallel.state_dict_type(
        model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(translate_on_save=True)
    ):
        return model.state_dict()


def same_training(model, rank, ranks):
    """As one process would, with Hugging Face's names."""
    wanted_losses, wanted_norms, wanted = alone(ranks)
    losses, norms = trained(model, rank, ranks)
    near(losses, wanted_losses)
    near(norms, wanted_norms)
    got = whole(model)
    assert set(got) == set(wanted), sorted(set(got) ^ set(wanted))
    for name, it in wanted.items():
        near(got[name], it, 1e-4)


FSDP = partial(FullyShardedDataParallel, auto_wrap_policy=ModuleWrapPolicy({Layer}))


def config(rank, ranks):
    wrong = [
        ({"hybrid_shard_degree": 3}, ("hybrid_shard_degree=3", "between 0 and 2")),
        ({"tensor_parallel_degree": 4}, ("tensor_parallel_degree=4", "2 ranks")),
        ({"context_parallel_degree": 2, "hybrid_shard_degree": 1}, ("context_parallel_degree=2", "nearest valid: 1")),
        ({"activation_loading_horizon": 0}, ("activation_loading_horizon=0",)),
        ({"hybrid_shard_degree": "many"}, ("hybrid_shard_degree='many'", "whole number")),
        ({"sm_activation_offloading": 1}, ("sm_activation_offloading=1", "true or false")),
        ({"tensor_paralel_degree": 2}, ("did you mean tensor_parallel_degree?",)),
        ({"partitions": 2}, ("torch.distributed.pipelining",)),
        ("/nowhere.json", ("/nowhere.json",)),
    ]
    tsm.state.__init__()
    for given, words in wrong:
        with refused(ValueError, *words):
            tsm.init(given)
    with refused(RuntimeError, "torch.sagemaker.init()"):
        tsm.state.tp_rank  # noqa: B018
    os.environ["SM_HP_MP_PARAMETERS"] = '{"hybrid_shard_degree": 1, "random_seed": 7}'
    begin(hybrid_shard_degree=2, activation_loading_horizon=4)
    del os.environ["SM_HP_MP_PARAMETERS"]
    state = tsm.state
    assert (state.hybrid_shard_degree, state.activation_loading_horizon, state.random_seed) == (1, 4, 7)
    assert (state.rank, state.world_size, state.tp_size, state.tp_rank, state.sm_activation_offloading) == (
        rank,
        ranks,
        1,
        0,
        True,
    )
    with refused(RuntimeError, "already"):
        tsm.init()
    assert state.ranker.get_rep_rank(rank) == rank and state.ranker.get_rep_groups() == [[0, 1]]
    begin(hybrid_shard_degree=2)
    assert state.ranker.get_rep_rank(1) == 0 and state.ranker.get_rep_groups() == [[0], [1]]
    assert dist.get_process_group_ranks(state.rep_rank_process_group) == [0, 1]
    begin()
    assert (
        state.tp_process_group is None
        and state.rep_rank_process_group is None
        and state.world_process_group.size() == ranks
    )


def sharding(rank, ranks):
    for degree, given, used in (
        (0, None, ShardingStrategy.FULL_SHARD),
        (0, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.SHARD_GRAD_OP),
        (1, None, ShardingStrategy.NO_SHARD),
        (2, ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD),
        (2, ShardingStrategy._HYBRID_SHARD_ZERO2, ShardingStrategy._HYBRID_SHARD_ZERO2),
    ):
        begin(hybrid_shard_degree=degree)
        model = tsm.transform(llama())
        assert isinstance(model.layers[0], TransformerLayer) and not isinstance(model.norm, TransformerLayer)
        model = FullyShardedDataParallel(
            model, auto_wrap_policy=ModuleWrapPolicy({TransformerLayer}), sharding_strategy=given
        )
        assert model.sharding_strategy is used and model.process_group.size() == ranks
        same_training(model, rank, ranks)


def offloading(rank, ranks):
    begin()
    model = FSDP(tsm.transform(llama()), use_orig_params=True)
    apply_activation_checkpointing(
        model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda it: isinstance(it, TransformerLayer)
    )
    model = offload_wrapper(model)
    losses, norms = trained(model, rank, ranks)
    near(losses, alone(ranks)[0])
    near(norms, alone(ranks)[1])


def delayed(rank, ranks):
    begin()
    with torch.device("meta"):
        model = TinyLlama(tied=True)
    model.steps = torch.zeros(())
    made = DelayedParamIniter(model)
    with made.validate_params_and_buffers_inited():
        model = FSDP(
            model,
            param_init_fn=made.get_param_init_fn(),
            post_param_init_fn=made.get_post_param_init_fn(),
            use_orig_params=True,
        )
    values = whole(model)
    assert torch.equal(values["lm_head.weight"], values["embed_tokens.weight"])
    assert 0.05 < values["layers.0.mlp.up_proj.weight"].std() < 0.15 and torch.equal(
        values["norm.weight"], torch.ones(16)
    )
    # What the ranks start from is one model: of rank 0's values where the seeds differ, so train
    # the same in one process.
    model = FSDP(_delayed_model(values), use_orig_params=True)
    copied = TinyLlama(tied=True)
    copied.load_state_dict(values)
    near(trained(model, rank, ranks)[0], alone(ranks, copied)[0])
    _delayed_mistakes()


def _delayed_model(values):
    model = TinyLlama(tied=True)
    model.load_state_dict(values)
    return model


def _delayed_mistakes():
    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = torch.nn.Parameter(torch.ones(3))

    with torch.device("meta"):
        models = [torch.nn.Sequential(Scale()) for _ in range(3)]
    made = DelayedParamIniter(models[0])
    with refused(ValueError, "factor of Scale", "init_method_using_config"):
        FullyShardedDataParallel(models[0], param_init_fn=made.get_param_init_fn())
    made = DelayedParamIniter(models[1])
    with refused(AssertionError, "meta device", "0.factor"), made.validate_params_and_buffers_inited():
        pass

    def own(module):
        from torch.sagemaker.utils.module_utils import empty_module_params, move_buffers_to_device

        empty_module_params(module, device="cpu")
        if isinstance(module, Scale):
            module.factor.data.fill_(2.0)
        move_buffers_to_device(module, device="cpu")

    made = DelayedParamIniter(models[2], init_method_using_config=own, verbose=False)
    with made.validate_params_and_buffers_inited():
        model = FullyShardedDataParallel(models[2], param_init_fn=made.get_param_init_fn())
    assert torch.equal(whole(model)["0.factor"], torch.full((3,), 2.0))


def tensor_parallel(rank, ranks):
    begin(tensor_parallel_degree=2)
    assert (tsm.state.tp_rank, tsm.state.tp_size) == (rank, 2)
    assert dist.get_process_group_ranks(tsm.state.tp_process_group) == [0, 1]
    # All tensor ranks have the same samples; weights are those of the group's first rank.
    model = tsm.transform(llama(seed=1 + rank))
    assert model.layers[0].self_attn.num_heads == 2 and model.layers[0].mlp.up_proj.weight.to_local().shape == (12, 16)
    model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({TransformerLayer}), use_orig_params=True)
    assert model.process_group.size() == 1
    wanted_losses, wanted_norms, wanted = alone(1)
    losses, norms = trained(model, 0, 1)
    near(losses, wanted_losses)
    near(norms, wanted_norms)
    got = whole(model)
    assert set(got) == set(wanted)
    for name, it in wanted.items():
        near(got[name], it, 1e-4)
    # Dropout where ranks have parts: other numbers on each; torch's own go on as before.
    torch.manual_seed(3)
    with tsm.state.get_rng_state_tracker().fork():
        drawn = torch.rand(4)
    others = [torch.empty(4) for _ in range(2)]
    dist.all_gather(others, drawn)
    assert not torch.equal(*others)
    torch.manual_seed(3)
    first = torch.rand(4)
    torch.manual_seed(3)
    assert torch.equal(first, torch.rand(4))


def tensor_parallel_without_orig_params(rank, ranks):
    begin(tensor_parallel_degree=2)
    model = FSDP(tsm.transform(llama()))
    losses, norms = trained(model, 0, 1)
    near(losses, alone(1)[0])
    near(norms, alone(1)[1])
    # A full state dict into a model with other values.
    other = FSDP(tsm.transform(llama(seed=9)))
    with FullyShardedDataParallel.state_dict_type(other, StateDictType.FULL_STATE_DICT):
        other.load_state_dict(whole(model))
    wanted = whole(model)
    for name, it in whole(other).items():
        assert type(it) is torch.Tensor and torch.equal(it, wanted[name]), name


def tensor_parallel_from_rank0(rank, ranks):
    """Rank 0 has the weights, the other none; and none at all."""
    begin(tensor_parallel_degree=2)
    if rank == 0:
        model = llama()
    else:
        with torch.device("meta"):
            model = TinyLlama()
    model = FSDP(tsm.transform(model, load_state_dict_from_rank0=True), use_orig_params=True, sync_module_states=True)
    near(trained(model, 0, 1)[0], alone(1)[0])
    with torch.device("meta"):
        model = TinyLlama()
    model.steps = torch.zeros(())
    model = tsm.transform(model)
    made = DelayedParamIniter(model)
    with made.validate_params_and_buffers_inited():
        model = FSDP(model, param_init_fn=made.get_param_init_fn(), use_orig_params=True)
    values = whole(model)
    assert values["layers.0.mlp.up_proj.weight"].shape == (24, 16)
    copied = TinyLlama()
    copied.load_state_dict(values)
    near(trained(model, 0, 1)[0], alone(1, copied)[0])


def refusals(rank, ranks):
    begin(expert_parallel_degree=2)
    with refused(NotImplementedError, "expert_parallel_degree=2", "hybrid_shard_degree"):
        tsm.transform(llama())
    begin()
    from torch.sagemaker.moe.moe_config import MoEConfig

    with refused(NotImplementedError, "MoEConfig"):
        tsm.transform(llama(), config=MoEConfig())
    with refused(ValueError, "moe_load_balancing"):
        MoEConfig(moe_load_balancing="fair")
    begin(context_parallel_degree=2)
    with refused(NotImplementedError, "context_parallel"):
        tsm.transform(llama())
    with refused(NotImplementedError, "TransformerLayer"):
        TransformerLayer()
    begin(tensor_parallel_degree=2)
    with refused(NotImplementedError, "Linear", "parallelize_module"):
        tsm.transform(torch.nn.Linear(2, 2))
    model = llama()
    model.config.num_key_value_heads = 3
    with refused(ValueError, "num_key_value_heads, 3", "nearest valid: 1"):
        tsm.transform(model)
    with refused(NotImplementedError, "/opt/ml/checkpoints"):
        state_dict_saver.save({}, checkpoint_id="s3://bucket/key")
    with refused(ValueError, "checkpoint_id"):
        state_dict_saver.async_save({})
    with refused(ValueError, "torch_dist"):
        state_dict_saver.async_save({}, checkpoint_id="/tmp/x", sharded_strategy=("zarr", 1))


def attention(rank, ranks):
    from torch.nn.functional import scaled_dot_product_attention as plain
    from torch.sagemaker.nn.attn import FlashGroupedQueryAttention, FlashSelfAttention
    from torch.sagemaker.nn.huggingface.llama_flashattn import LlamaFlashAttention

    q, k, v = torch.randn(3, 2, 4, 5, 8)
    wanted = plain(q, k, v, is_causal=True)
    near(FlashSelfAttention()((q, k, v), causal=True), wanted)
    near(FlashSelfAttention()(torch.cat([q, k, v], 1), causal=True), wanted)
    near(FlashSelfAttention()(torch.cat([q, k, v], 1).transpose(1, 2), causal=True, layout="b s h d"), wanted)
    assert FlashSelfAttention()((q, k, v), cast_dtype=torch.bfloat16).dtype == torch.bfloat16
    bias = torch.randn(2, 4, 1, 5)
    near(
        FlashSelfAttention(triton_flash_attention=True, use_alibi=True)((q, k, v), bias),
        plain(q, k, v, bias.expand(2, 4, 5, 5)),
    )
    with refused(ValueError, "use_alibi"):
        FlashSelfAttention()((q, k, v), bias)
    grouped = FlashGroupedQueryAttention(scale=0.5)
    k, v = k[:, :2], v[:, :2]
    wanted = plain(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), scale=0.5)
    near(grouped(q.transpose(1, 2), (k.transpose(1, 2), v.transpose(1, 2))), wanted)
    near(grouped(q, torch.cat([k, v], 1), layout="b h s d"), wanted)
    attention = LlamaFlashAttention(Config())
    x = torch.randn(2, 5, 16)
    output, weights, cache = attention(x)
    assert output.shape == x.shape and weights is None and cache is None
    # What comes later does not count, and neither do all positions together.
    near(attention(x[:, :3])[0], output[:, :3])
    near(attention(x, position_ids=torch.arange(5).unsqueeze(0) + 7)[0], output, 1e-4)


def helpers(rank, ranks):
    try:
        from torch.sagemaker.distributed.fsdp import checkpoint  # noqa: F401
    except ImportError as error:
        assert "torch.utils.checkpoint.checkpoint" in str(error), error
    else:
        raise AssertionError("what is not offered is imported")
    from torch.sagemaker.checkpoint.utils import SORT_BY_LAST_INT, limit_num_subdirs
    from torch.sagemaker.logger import get_logger
    from torch.sagemaker.utils.process_group_utils import get_global_ranks
    from torch.sagemaker.utils.utils import timeit

    assert get_global_ranks() == [0, 1] and get_logger() is get_logger()
    assert SORT_BY_LAST_INT("model-12-34steps") == 34
    with timeit(rank == 0, "nothing", rank):
        pass
    with tempfile.TemporaryDirectory() as directory:
        for step in (5, 10, 100):
            os.mkdir(f"{directory}/at-{step}")
        removed = limit_num_subdirs(directory, 2, sort=SORT_BY_LAST_INT)
        assert (removed, sorted(os.listdir(directory))) == (
            ([f"{directory}/at-5"], ["at-10", "at-100"]) if rank == 0 else ([], ["at-10", "at-100", "at-5"])
        )
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    begin()
    assert clip_grad_norm_(model, 1e9) > 1
