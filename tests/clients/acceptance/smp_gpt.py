"""The calls of SageMaker's training of a GPT (2023) with sharded data parallelism and checkpoints, in its order; on the CPU, a small model."""

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


parser = argparse.ArgumentParser()
parser.add_argument("--mp_parameters", type=str, default="")
parser.add_argument("--sharded_data_parallel_degree", type=int, default=2)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--model_dir", type=str, default=os.environ["SM_MODEL_DIR"])
args, _ = parser.parse_known_args()
torch.set_num_threads(1)
smp.init({"ddp": True, "sharded_data_parallel_degree": args.sharded_data_parallel_degree, "skip_tracing": True, "microbatches": 1})
config = smp.state.cfg
assert config.sharded_data_parallel_degree == args.sharded_data_parallel_degree


def made():
    torch.manual_seed(11)
    with smp.model_creation(tensor_parallelism=smp.tp_size() > 1, dtype=torch.get_default_dtype()):
        model = text.GPT(layers=2)
    model = smp.DistributedModel(model, trace_device="cpu")
    for block in model.get_module().transformer.h:
        smp.set_activation_checkpointing(block)
    optimizer = smp.DistributedOptimizer(optim.AdamW(model.parameters(), lr=3e-3))
    return model, optimizer


def train(model, optimizer, first, last):
    losses = []
    for step, (input_ids, labels) in enumerate(text.batches(smp.dp_rank(), smp.dp_size(), 8, 32, last)):
        if step < first:
            continue
        optimizer.zero_grad(set_to_none=True)
        loss = train_step(model, optimizer, input_ids, labels, args).reduce_mean()
        if config.fp16:
            optimizer.clip_master_grads(1.0)
        optimizer.step()
        if not (config.fp16 and optimizer.overflow):
            losses.append(loss.item())
    return losses


model, optimizer = made()
half = args.steps // 2
losses = train(model, optimizer, 0, half)
smp.save_checkpoint(
    args.model_dir, tag=f"step{half}", partial=True, model=model, optimizer=optimizer, user_content={"step": half}, num_kept_partial_checkpoints=1
)
smp.barrier()
rest = train(model, optimizer, half, args.steps)
assert rest[-1] < losses[0], (losses, rest)
print(f"rank {smp.rank()} of {smp.size()}")
if smp.rank() == 0:
    with open(os.path.join(args.model_dir, "newest")) as file:
        assert file.read().strip().startswith(f"step{half}")
    print(f"first={losses[0]:.4f}; loss={rest[-1]:.4f};")
