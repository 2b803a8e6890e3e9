"""The calls of SageMaker's simple training of a GPT (2022) with model parallelism, in its order; on the CPU, a small model."""

import argparse
import os

import smdistributed.modelparallel.torch as smp
import text
import torch
from torch import optim


@smp.step
def train_step(model, optimizer, input_ids, labels, args):
    loss = model(input_ids=input_ids, labels=labels)
    model.backward(loss)
    return loss


@smp.step
def test_step(model, input_ids, labels):
    return model(input_ids=input_ids, labels=labels)


def set_activation_checkpointing(model):
    for block in model.get_module().transformer.h:
        smp.set_activation_checkpointing(block, preserve_rng_state=False)


parser = argparse.ArgumentParser()
parser.add_argument("--mp_parameters", type=str, default="")
parser.add_argument("--pipeline_parallel_degree", type=int, default=2)
parser.add_argument("--tensor_parallel_degree", type=int, default=1)
parser.add_argument("--microbatches", type=int, default=2)
parser.add_argument("--manual_partition", type=int, default=0)
parser.add_argument("--activation_checkpointing", type=int, default=1)
parser.add_argument("--model_dir", type=str, default=os.environ["SM_MODEL_DIR"])
args, _ = parser.parse_known_args()
torch.set_num_threads(1)
smp.init(
    {
        "ddp": True,
        "tensor_parallel_degree": args.tensor_parallel_degree,
        "pipeline_parallel_degree": args.pipeline_parallel_degree,
        "microbatches": args.microbatches,
        "placement_strategy": "cluster",
        "auto_partition": not args.manual_partition,
        "default_partition": 0,
        "optimize": "speed",
    }
)
torch.manual_seed(11)
with smp.tensor_parallelism(enabled=smp.tp_size() > 1, attention_in_fp32=False), smp.delay_param_initialization(enabled=False):
    model = text.GPT(layers=4)
model = smp.DistributedModel(model, trace_device="cpu", gradient_as_bucket_view=True)
if args.manual_partition:
    blocks = model.get_module().transformer.h
    for index, block in enumerate(blocks):
        smp.set_partition(block, index * smp.pp_size() // len(blocks))
if args.activation_checkpointing:
    set_activation_checkpointing(model)
optimizer = optim.AdamW(model.parameters(), lr=3e-3)
optimizer = smp.DistributedOptimizer(optimizer)
scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=100)
losses = []
model.train()
for input_ids, labels in text.batches(smp.dp_rank(), smp.dp_size(), 8, 32, 30):
    optimizer.zero_grad(set_to_none=True)
    loss_mb = train_step(model, optimizer, input_ids, labels, args)
    loss = loss_mb.reduce_mean()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    [(input_ids, labels)] = text.batches(0, 1, 8, 32, 1)
    val_loss = test_step(model, input_ids, labels).reduce_mean().item()
if smp.dp_rank() == 0:
    smp.save({"model": model.local_state_dict(), "optimizer": optimizer.local_state_dict()}, os.path.join(args.model_dir, "trained.pt"), partial=True)
smp.barrier()
if smp.rdp_rank() == 0:
    whole = model.state_dict(gather_to_rank0=True)
    if smp.rank() == 0:
        smp.save(whole, os.path.join(args.model_dir, "fullmodel.pt"), partial=False)
smp.barrier()
print(f"rank {smp.rank()} of {smp.size()}: pipeline {smp.get_pp_group() if hasattr(smp, 'get_pp_group') else ''}, tensor {smp.get_tp_group()}")
assert losses[-1] < 0.85 * losses[0], losses
if smp.rank() == 0:
    print(f"first={losses[0]:.4f}; loss={losses[-1]:.4f}; val={val_loss:.4f};")
