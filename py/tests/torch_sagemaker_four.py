"""What four ranks check of `torch.sagemaker`: two kinds of parallelism at once."""

import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from tiny_llama import loss
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.sagemaker.grad_norm import clip_grad_norm_
from torch.sagemaker.tensor_parallel.transformer import TransformerLayer
from torch_sagemaker_checks import NORM, alone, batches, begin, llama, near, whole


def _train(rank, **degrees):
    """Two replicas of the samples' parts: ranks of one tensor group have the same."""
    begin(**degrees)
    model = tsm.transform(llama())
    model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({TransformerLayer}), use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    parts = 4 // tsm.state.tp_size
    losses, norms = [], []
    for tokens in batches(parts)[:, rank // tsm.state.tp_size]:
        optimizer.zero_grad()
        value = loss(model, tokens)
        value.backward()
        norms.append(float(clip_grad_norm_(model, NORM)))
        optimizer.step()
        mean = value.detach() / 4
        dist.all_reduce(mean)
        losses.append(mean.item())
    wanted_losses, wanted_norms, wanted = alone(parts)
    near(losses, wanted_losses)
    near(norms, wanted_norms)
    for name, it in whole(model).items():
        near(it, wanted[name], 1e-4)
    return model


def shards_and_tensor_ranks(rank, size):
    model = _train(rank, tensor_parallel_degree=2)
    assert model.process_group.size() == 2 and dist.get_process_group_ranks(tsm.state.tp_process_group) == [
        rank // 2 * 2,
        rank // 2 * 2 + 1,
    ]
    model = _train(rank, tensor_parallel_degree=2, hybrid_shard_degree=1)
    assert tsm.state.ranker.get_rep_groups() == [[0, 2], [1, 3]]


def replicas_of_shards(rank, size):
    model = _train(rank, hybrid_shard_degree=2)
    assert dist.get_process_group_ranks(model.process_group) == [rank // 2 * 2, rank // 2 * 2 + 1]
    assert tsm.state.ranker.get_rep_groups() == [[0, 2], [1, 3]] and tsm.state.ranker.get_rep_rank(rank) == rank // 2
