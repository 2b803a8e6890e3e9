"""The calls of SageMaker's data parallel example (2024) on MNIST, in its order: the backend
`smddp` of torch.distributed; on the CPU.
"""

import argparse
import os

import digits
import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
import torch
import torch.distributed as dist
import torch.nn.functional as F
from sagemaker_training import environment
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import StepLR

env = environment.Environment()
assert env.additional_framework_parameters["sagemaker_distributed_dataparallel_enabled"] is True
dist.init_process_group(backend="smddp")

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()
world_size, rank, local_rank = dist.get_world_size(), dist.get_rank(), int(os.environ["LOCAL_RANK"])
args.batch_size = max(args.batch_size // world_size, 1)
torch.manual_seed(1)
torch.set_num_threads(1)
if local_rank == 0:
    train_dataset = digits.torch_dataset(train=True)
dist.barrier()
if local_rank != 0:
    train_dataset = digits.torch_dataset(train=True)
train_sampler = torch.utils.data.distributed.DistributedSampler(train_dataset, num_replicas=world_size, rank=rank)
train_loader = torch.utils.data.DataLoader(train_dataset, batch_size=args.batch_size, sampler=train_sampler)
model = DDP(digits.torch_model())
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
for epoch in range(args.epochs):
    model.train()
    for data, target in train_loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
    scheduler.step()
print(f"rank {rank} of {world_size}")
if rank == 0:
    print(f"loss={loss.item():.4f}; accuracy={digits.accuracy_of(model.module):.4f};")
    torch.save(model.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
dist.destroy_process_group()
