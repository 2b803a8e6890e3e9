"""The calls of SageMaker's simple training of GPT-2 (2022) with model parallelism, in its order;
on the CPU, a small model.
"""

import argparse
import os

import smdistributed.modelparallel.torch as smp
import text
import torch
from smdistributed.modelparallel.torch.nn.huggingface import gpt2
from torch import nn, optim

try:
    from transformers import GPT2Config, GPT2LMHeadModel
except ImportError:
    from text import GPT2Config, GPT2LMHeadModel

    gpt2.register(GPT2LMHeadModel)

LENGTH = 32


@smp.step
def train_step(model, optimizer, input_ids, attention_mask, args):
    loss = model(input_ids=input_ids, attention_mask=attention_mask, labels=input_ids)["loss"]
    model.backward(loss)
    return loss


@smp.step
def test_step(model, input_ids, attention_mask):
    return model(input_ids=input_ids, attention_mask=attention_mask, labels=input_ids)["loss"]


def eval_model(model):
    model.eval()
    with torch.no_grad():
        [(input_ids, attention_mask)] = text.batches(0, 1, 8, LENGTH, 1)
        loss = test_step(model, input_ids, attention_mask).reduce_mean().item()
    model.train()
    return loss


def save(path, model, optimizer, lr_scheduler, args, partial):
    """Of each rank's part, where states are not gathered in files of their own (`v3`); or of the
    whole model under the names of Hugging Face.
    """
    saved = {"cli_args": args.__dict__, "lr_scheduler": lr_scheduler.state_dict()}
    gather = not args.shard_optimizer_state
    if partial:
        if gather or smp.rdp_rank() == 0:
            saved["model"] = model.local_state_dict()
        saved["optimizer"] = optimizer.local_state_dict(gather_if_shard=gather)
        if not gather or smp.rdp_rank() == 0:
            smp.save(saved, path, partial=True, v3=not gather)
        return
    whole = model.state_dict(gather_to_rank0=True) if smp.rdp_rank() == 0 else {}
    if smp.rank() == 0:
        saved["model"] = gpt2.translate_state_dict_to_hf_gpt2(whole, LENGTH)
        smp.save(saved, path, partial=False)


parser = argparse.ArgumentParser()
parser.add_argument("--mp_parameters", type=str, default="")
parser.add_argument("--pipeline_parallel_degree", type=int, default=1)
parser.add_argument("--tensor_parallel_degree", type=int, default=1)
parser.add_argument("--shard_optimizer_state", type=int, default=0)
parser.add_argument("--microbatches", type=int, default=2)
parser.add_argument("--manual_partition", type=int, default=0)
parser.add_argument("--delayed_param", type=int, default=1)
parser.add_argument("--activation_strategy", type=str, default="each")
parser.add_argument("--model_dir", type=str, default=os.environ["SM_MODEL_DIR"])
args, _ = parser.parse_known_args()
torch.set_num_threads(1)
smp.init(
    {
        "ddp": True,
        "tensor_parallel_degree": args.tensor_parallel_degree,
        "pipeline_parallel_degree": args.pipeline_parallel_degree,
        "shard_optimizer_state": args.shard_optimizer_state > 0,
        "microbatches": args.microbatches,
        "placement_strategy": "cluster",
        "auto_partition": not args.manual_partition,
        "default_partition": 0,
        "optimize": "speed",
    }
)
config = GPT2Config(
    n_layer=4,
    n_head=4,
    n_embd=32,
    n_positions=LENGTH,
    vocab_size=128,
    attn_pdrop=0.0,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    activation_function="gelu_new",
)
torch.manual_seed(11)
distributed = smp.tp_size() > 1
with (
    smp.tensor_parallelism(enabled=distributed, attention_in_fp32=False),
    smp.delay_param_initialization(enabled=distributed and args.delayed_param > 0),
):
    model = GPT2LMHeadModel(config)
model = smp.DistributedModel(model, trace_device="cpu", gradient_as_bucket_view=True)
module = model.get_module()
layers = module.transformer.seq_layers if distributed else module.transformer.h
if args.manual_partition:
    for index, layer in enumerate(layers.children()):
        smp.set_partition(layer, index * smp.pp_size() // len(layers))
optimizer = optim.AdamW(model.parameters(), lr=3e-3)
if isinstance(layers, nn.Sequential):
    smp.set_activation_checkpointing(layers, pack_args_as_tuple=True, strategy=args.activation_strategy)
else:
    for layer in layers.children():
        smp.set_activation_checkpointing(layer)
optimizer = smp.DistributedOptimizer(optimizer)
lr_scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=100)
parts = []
model.register_post_partition_hook(
    lambda model, optimizer: parts.append(sum(it.numel() for it in model.local_parameters()))
)
losses = []
model.train()
for input_ids, attention_mask in text.batches(smp.dp_rank(), smp.dp_size(), 8, LENGTH, 30):
    optimizer.zero_grad(set_to_none=True)
    loss_mb = train_step(model, optimizer, input_ids, attention_mask, args)
    loss = loss_mb.reduce_mean()
    optimizer.step()
    lr_scheduler.step()
    losses.append(loss.item())
val_loss = eval_model(model)
partial_path, full_path = (os.path.join(args.model_dir, name) for name in ("trained_partial.pt", "trained_full.pt"))
save(partial_path, model, optimizer, lr_scheduler, args, partial=True)
save(full_path, model, optimizer, lr_scheduler, args, partial=False)
smp.barrier()
[part] = parts
print(f"rank {smp.rank()} of {smp.size()}: {part} parameters, tensor parallel group {smp.get_tp_group()}")
assert losses[-1] < 0.85 * losses[0], losses
if args.shard_optimizer_state or smp.rdp_rank() == 0:
    loaded = smp.load(partial_path, partial=True)
    optimizer.load_state_dict(loaded["optimizer"])
    if smp.rdp_rank() == 0:
        model.load_state_dict(loaded["model"])
if smp.rank() == 0:
    plain = GPT2LMHeadModel(config).eval()
    found = plain.load_state_dict(smp.load(full_path, partial=False)["model"], strict=False)
    assert not found.missing_keys, found
    with torch.no_grad():
        [(input_ids, attention_mask)] = text.batches(0, 1, 8, LENGTH, 1)
        alone = plain(input_ids=input_ids, attention_mask=attention_mask, labels=input_ids)["loss"].item()
    assert abs(alone - val_loss) < 1e-4, (alone, val_loss)
    print(f"first={losses[0]:.4f}; loss={losses[-1]:.4f}; val={val_loss:.4f};")
