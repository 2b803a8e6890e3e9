"""The calls of SageMaker's training of a GPT (2023) with sharded data parallelism or tensor
parallelism, half precision and checkpoints, in its order; on the CPU, a small model.
"""

import argparse
import os

import smdistributed.modelparallel.torch as smp
import text
import torch
from smdistributed.modelparallel.torch.nn.huggingface import gpt2
from torch import optim

LENGTH = 32


@smp.step
def train_step(model, optimizer, input_ids, attention_mask, args):
    loss = model(input_ids=input_ids, attention_mask=attention_mask, labels=input_ids)["loss"]
    model.backward(loss)
    return loss


parser = argparse.ArgumentParser()
parser.add_argument("--mp_parameters", type=str, default="")
parser.add_argument("--fp16", type=int, default=0)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--model_dir", type=str, default=os.environ["SM_MODEL_DIR"])
args, _ = parser.parse_known_args()
torch.set_num_threads(1)
smp.init(
    {
        "ddp": True,
        "skip_tracing": True,
        "microbatches": 1,
        "fp16": args.fp16 > 0,
        "delayed_parameter_initialization": True,
        "activation_loading_horizon": 4,
    }
)
config = smp.state.cfg
gpt2.register(text.GPT2LMHeadModel)


def made():
    torch.manual_seed(11)
    with smp.model_creation(
        tensor_parallelism=smp.tp_size() > 1, dtype=torch.get_default_dtype(), flash_attention=False
    ):
        model = text.GPT2LMHeadModel(text.GPT2Config(n_layer=2))
    model = smp.DistributedModel(model, trace_device="cpu", backward_passes_per_step=1)
    module = model.get_module()
    if smp.tp_size() > 1:
        smp.set_activation_checkpointing(module.transformer.seq_layers, pack_args_as_tuple=True, strategy="each")
    else:
        for block in module.transformer.h:
            smp.set_activation_checkpointing(block)
    decays = [it for it in model.parameters() if it.dim() > 1]
    others = [it for it in model.parameters() if it.dim() <= 1]
    optimizer = optim.AdamW(
        [{"params": decays, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=3e-3
    )
    optimizer = smp.DistributedOptimizer(
        optimizer,
        static_loss_scale=None,
        dynamic_loss_scale=config.fp16,
        dynamic_loss_args={"scale_window": 1000, "min_scale": 1, "delayed_shift": 1},
    )
    return model, optimizer, optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.98**step)


def train(model, optimizer, scheduler, begin, steps):
    """Losses of `steps` steps from batch `begin` on, and the next batch. A step with an overflow
    is none: the loss scale begins too large.
    """
    rank, size = (smp.rdp_rank(), smp.rdp_size()) if config.prescaled_batch else (smp.dp_rank(), smp.dp_size())
    losses = []
    for batch, (input_ids, attention_mask) in enumerate(text.batches(rank, size, 8, LENGTH, begin + steps + 60)):
        if batch < begin:
            continue
        if len(losses) == steps:
            return losses, batch
        optimizer.zero_grad(set_to_none=True)
        loss = train_step(model, optimizer, input_ids, attention_mask, args).reduce_mean()
        if config.fp16:
            optimizer.clip_master_grads(1.0)
        optimizer.step()
        if config.fp16 and optimizer.overflow:
            continue
        scheduler.step()
        losses.append(loss.item())
    raise RuntimeError(f"60 steps had an overflow, loss scale {optimizer.loss_scaler.loss_scale}")


model, optimizer, scheduler = made()
half = args.steps // 2
first, batch = train(model, optimizer, scheduler, 0, half)
assert (batch > half) == config.fp16, batch
content = {"total_steps": half, "batch": batch, "lr_scheduler": scheduler.state_dict()}
smp.save_checkpoint(
    args.model_dir,
    tag=f"step{half}",
    partial=True,
    model=model,
    optimizer=optimizer,
    user_content=content,
    num_kept_partial_checkpoints=1,
)
smp.barrier()
rest, _ = train(model, optimizer, scheduler, batch, args.steps - half)
assert rest[-1] < first[0], (first, rest)
# A job that is started again: what follows from the checkpoint is what followed before.
model, optimizer, scheduler = made()
found = smp.resume_from_checkpoint(args.model_dir, tag=f"step{half}", partial=True, load_optimizer=True)
scheduler.load_state_dict(found["lr_scheduler"])
again, _ = train(model, optimizer, scheduler, found["batch"], args.steps - found["total_steps"])
assert again == rest, (rest, again)
smp.save_checkpoint(
    args.model_dir,
    tag="full",
    partial=False,
    model=model,
    optimizer=optimizer,
    user_content=content,
    translate_if_full=True,
)
print(f"rank {smp.rank()} of {smp.size()}: loss scale {optimizer.loss_scaler.loss_scale}")
if smp.rank() == 0:
    assert os.path.exists(os.path.join(args.model_dir, f"step{half}_partial", "user_content.pt"))
    with open(os.path.join(args.model_dir, "newest")) as file:
        assert file.read().strip() == "full"
    print(f"first={first[0]:.4f}; loss={rest[-1]:.4f};")
