"""The calls of SageMaker's pretraining of BERT with model parallelism, in its order, with its
fused layers; on the CPU, a small model and made-up tokens.
"""

import argparse
import os

import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch.nn import FusedLayerNorm
from smdistributed.modelparallel.torch.optimizers import FusedLAMB
from torch import nn


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm1, self.norm2 = FusedLayerNorm(width), FusedLayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        x = self.norm1(x + self.attention(x, x, x, need_weights=False)[0])
        return self.norm2(x + self.down(nn.functional.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self, vocabulary=64, width=32, layers=4):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.Sequential(*(Layer(width) for _ in range(layers)))
        self.decoder = nn.Linear(width, vocabulary)

    def forward(self, ids):
        return self.decoder(self.layers(self.embedding(ids)))


@smp.step
def smp_step(args, device, input_ids, labels, model):
    scores = model(input_ids)
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-1)
    model.backward(loss)
    return loss


parser = argparse.ArgumentParser()
parser.add_argument("--mp_parameters", type=str, default="")
args, _ = parser.parse_known_args()
torch.set_num_threads(1)
assert not smp.is_initialized()
smp.init()
assert smp.is_initialized() and not smp.is_tracing()
torch.manual_seed(3)
model = smp.DistributedModel(Bert())
decay = [parameter for name, parameter in model.named_parameters() if "bias" not in name and "norm" not in name]
others = [parameter for name, parameter in model.named_parameters() if "bias" in name or "norm" in name]
optimizer = FusedLAMB([{"params": decay, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=0.02)
optimizer = smp.DistributedOptimizer(optimizer)
made = torch.Generator().manual_seed(smp.dp_rank())
losses = []
for step in range(40):
    # The next number, of which some places are masked.
    first = torch.randint(0, 64, (8, 1), generator=made)
    labels = (first + torch.arange(16)) % 64
    input_ids = labels.clone()
    input_ids[:, ::5] = 0
    optimizer.zero_grad()
    loss = smp_step(args, torch.device("cpu"), input_ids, labels, model).reduce_mean()
    optimizer.step()
    losses.append(loss.item())
output = os.path.join(os.environ["SM_MODEL_DIR"], "ckpt_40.pt")
if smp.dp_rank() == 0:
    smp.save(
        {"model": model.local_state_dict(), "optimizer": optimizer.local_state_dict(), "step": 40}, output, partial=True
    )
smp.barrier()
if smp.dp_rank() == 0:
    assert smp.load(output, partial=True)["step"] == 40
print(f"rank {smp.rank()} of {smp.size()}, {smp.mp_rank()} of the model's")
assert losses[-1] < 0.7 * losses[0], losses
if smp.rank() == 0:
    print(f"first={losses[0]:.4f}; loss={losses[-1]:.4f};")
