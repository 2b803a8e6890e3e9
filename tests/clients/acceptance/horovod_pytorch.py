"""The calls of Horovod's PyTorch example on MNIST, in its order: compression to fp16, division
before the sum, Adasum.
"""

import argparse
import os

import digits
import horovod.torch as hvd
import torch
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--fp16-allreduce", type=str, default="False")
parser.add_argument("--use-adasum", type=str, default="False")
parser.add_argument("--gradient-predivide-factor", type=float, default=1.0)
args = parser.parse_args()
use_adasum = args.use_adasum == "True"

hvd.init()
torch.manual_seed(42)
torch.set_num_threads(1)

train_dataset = digits.torch_dataset(train=True)
train_sampler = torch.utils.data.distributed.DistributedSampler(train_dataset, num_replicas=hvd.size(), rank=hvd.rank())
train_loader = torch.utils.data.DataLoader(train_dataset, batch_size=args.batch_size, sampler=train_sampler)
test_dataset = digits.torch_dataset(train=False)
test_sampler = torch.utils.data.distributed.DistributedSampler(test_dataset, num_replicas=hvd.size(), rank=hvd.rank())
test_loader = torch.utils.data.DataLoader(test_dataset, batch_size=args.batch_size, sampler=test_sampler)

model = digits.torch_model()
lr_scaler = hvd.size() if not use_adasum else 1
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * lr_scaler, momentum=0.5)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
compression = hvd.Compression.fp16 if args.fp16_allreduce == "True" else hvd.Compression.none
optimizer = hvd.DistributedOptimizer(
    optimizer,
    named_parameters=model.named_parameters(),
    compression=compression,
    op=hvd.Adasum if use_adasum else hvd.Average,
    gradient_predivide_factor=args.gradient_predivide_factor,
)


def metric_average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


def test():
    model.eval()
    loss, right = 0.0, 0.0
    for data, target in test_loader:
        output = model(data)
        loss += F.cross_entropy(output, target, reduction="sum").item()
        right += output.argmax(1).eq(target).sum().item()
    return metric_average(loss / len(test_sampler), "avg_loss"), metric_average(
        right / len(test_sampler), "avg_accuracy"
    )


for epoch in range(1, args.epochs + 1):
    model.train()
    train_sampler.set_epoch(epoch)
    for data, target in train_loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
    loss, accuracy = test()

same = hvd.allgather_object([float(parameter.double().sum()) for parameter in model.parameters()])
assert all(other == same[0] for other in same), "ranks have different weights"
print(
    f"rank {hvd.rank()} of {hvd.size()}: local {hvd.local_rank()} of {hvd.local_size()}, host {hvd.cross_rank()} of {hvd.cross_size()}"
)
if hvd.rank() == 0:
    print(f"loss={loss:.4f}; accuracy={accuracy:.4f};")
    torch.save(model.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
