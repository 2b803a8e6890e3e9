"""The calls of SageMaker's model parallel library v2, in the order of its examples: FSDP made by
`torch.sagemaker`, of a model that has no parameters before, with offloaded activations and
asynchronous checkpoints; on the CPU.
"""

import argparse
import functools
import os

import text
import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.sagemaker.delayed_param import DelayedParamIniter
from torch.sagemaker.distributed.checkpoint.state_dict_loader import load
from torch.sagemaker.distributed.checkpoint.state_dict_saver import async_save, maybe_finalize_async_calls
from torch.sagemaker.distributed.checkpoint.state_dict_utils import (
    SMStateDictType,
    init_optim_state,
    sm_state_dict_type,
)
from torch.sagemaker.grad_norm import clip_grad_norm_

parser = argparse.ArgumentParser()
parser.add_argument("--mp_parameters", type=str, default="")
parser.add_argument("--checkpoint_dir", type=str, default="/opt/ml/checkpoints")
args, _ = parser.parse_known_args()
torch.set_num_threads(1)
dist.init_process_group("smddp")
tsm.init()
state = tsm.state
rank = dist.get_rank()


def made():
    torch.manual_seed(11)
    with torch.device("meta"):
        model = text.GPT2LMHeadModel(text.GPT2Config(n_layer=2))
    model = tsm.transform(model, load_state_dict_from_rank0=False)
    initer = DelayedParamIniter(model)
    with initer.validate_params_and_buffers_inited():
        model = FSDP(
            model,
            auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={text.GPT2Block}),
            sharding_strategy=ShardingStrategy.HYBRID_SHARD
            if state.hybrid_shard_degree > 1
            else ShardingStrategy.FULL_SHARD,
            device_id=torch.device("cpu"),
            param_init_fn=initer.get_param_init_fn(),
            post_param_init_fn=initer.get_post_param_init_fn(),
            use_orig_params=True,
        )
    apply_activation_checkpointing(
        model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda it: isinstance(it, text.GPT2Block)
    )
    if state.sm_activation_offloading:
        model = offload_wrapper(model)
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3)


def train(model, optimizer, first, last):
    losses = []
    for step, (input_ids, _) in enumerate(text.batches(rank, dist.get_world_size(), 8, 32, last)):
        if step < first:
            continue
        optimizer.zero_grad(set_to_none=True)
        loss = model(input_ids=input_ids, attention_mask=None, labels=input_ids)["loss"]
        loss.backward()
        clip_grad_norm_(model, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def local(model, optimizer):
    with sm_state_dict_type(model, SMStateDictType.SM_LOCAL_STATE_DICT):
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


model, optimizer = made()
losses = train(model, optimizer, 0, 10)
# A rank's shards are the same on the ranks that replicate them; each such group has a checkpoint.
groups = [(members, dist.new_group(members)) for members in state.ranker.get_rep_groups()]
[(members, group)] = [it for it in groups if rank in it[0]]
checkpoint = {
    "checkpoint_id": os.path.join(args.checkpoint_dir, f"step10/{members[0]}"),
    "process_group": group,
    "coordinator_rank": members[0],
}
async_save(local(model, optimizer), **checkpoint)
losses += train(model, optimizer, 10, 20)
assert maybe_finalize_async_calls(blocking=True, process_group=group) == [1]
# A job that is started again: what follows from the checkpoint is what followed before.
model, optimizer = made()
init_optim_state(optimizer, skip_empty_param=True)
given = local(model, optimizer)
load(given, **checkpoint)
optimizer.load_state_dict(given["optimizer"])
again = train(model, optimizer, 10, 20)
assert again == losses[10:], (again, losses)
assert losses[-1] < 0.85 * losses[0], losses
print(f"rank {state.rank} of {state.world_size}")
if rank == 0:
    print(f"first={losses[0]:.4f}; loss={losses[-1]:.4f};")
dist.destroy_process_group()
