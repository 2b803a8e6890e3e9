"""The calls of SageMaker's model parallel library v2, in the order of its examples: FSDP made by `torch.sagemaker`; on the CPU."""

import argparse
import functools

import text
import torch
import torch.distributed as dist
import torch.sagemaker as tsm
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

parser = argparse.ArgumentParser()
parser.add_argument("--mp_parameters", type=str, default="")
args, _ = parser.parse_known_args()
torch.set_num_threads(1)
dist.init_process_group("smddp")
tsm.init()
state = tsm.state
torch.manual_seed(11)
model = text.GPT(layers=2)
model = tsm.transform(model, load_state_dict_from_rank0=False)
policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={text.Block})
strategy = ShardingStrategy.HYBRID_SHARD if state.hybrid_shard_degree > 1 else ShardingStrategy.FULL_SHARD
model = FSDP(model, auto_wrap_policy=policy, sharding_strategy=strategy, device_id=torch.device("cpu"), sync_module_states=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
losses = []
for input_ids, labels in text.batches(dist.get_rank(), dist.get_world_size(), 8, 32, 20):
    optimizer.zero_grad(set_to_none=True)
    loss = model(input_ids, labels)
    loss.backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < 0.85 * losses[0], losses
print(f"rank {state.rank} of {state.world_size}")
if dist.get_rank() == 0:
    print(f"first={losses[0]:.4f}; loss={losses[-1]:.4f};")
dist.destroy_process_group()
