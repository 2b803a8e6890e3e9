"""The calls of SageMaker's first data parallel example (2021) on MNIST, in its order; on the
CPU, and with a batch that few ranks may share.
"""

import argparse
import os

import digits
import smdistributed.dataparallel.torch.distributed as dist
import torch
import torch.nn.functional as F
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import StepLR

dist.init_process_group()

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--data-path", type=str, default="/tmp/data")
args = parser.parse_args()
args.world_size = dist.get_world_size()
args.rank = rank = dist.get_rank()
args.local_rank = local_rank = dist.get_local_rank()
args.batch_size //= args.world_size
torch.manual_seed(1)
torch.set_num_threads(1)
assert int(os.environ["SMDATAPARALLEL_LOCAL_RANK"]) == local_rank

train_dataset = digits.torch_dataset(train=True)
train_sampler = torch.utils.data.distributed.DistributedSampler(train_dataset, num_replicas=args.world_size, rank=rank)
train_loader = torch.utils.data.DataLoader(
    train_dataset, batch_size=args.batch_size, shuffle=False, sampler=train_sampler
)
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
whole = torch.tensor([loss.item()])
dist.all_reduce(whole, op=dist.ReduceOp.AVERAGE)
dist.barrier()
print(f"rank {rank} of {args.world_size}")
if rank == 0:
    print(f"loss={whole.item():.4f}; accuracy={digits.accuracy_of(model):.4f};")
    torch.save(model.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
