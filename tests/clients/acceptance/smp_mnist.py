"""The calls of SageMaker's model parallel example (2021) on MNIST, in its order: two modules,
micro-batches, scalars of a step; on the CPU.
"""

import argparse
import os
import random

import digits
import numpy
import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR


class Net1(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 5, 2)
        self.conv2 = nn.Conv2d(8, 16, 5, 2)

    def forward(self, x):
        return torch.flatten(F.relu(self.conv2(F.relu(self.conv1(x)))), 1)


class Net2(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(256, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), 1)


class GroupedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = Net1()
        self.net2 = Net2()

    def forward(self, x):
        return self.net2(self.net1(x))


@smp.step
def train_step(model, scaler, data, target):
    output = model(data)
    loss = F.nll_loss(output, target, reduction="mean")
    model.backward(loss)
    return output, loss


@smp.step
def test_step(model, data, target):
    output = model(data)
    loss = F.nll_loss(output, target, reduction="sum").item()
    correct = output.argmax(dim=1, keepdim=True).eq(target.view(-1, 1)).sum().item()
    return loss, correct


def train(model, scaler, loader, optimizer):
    model.train()
    for data, target in loader:
        optimizer.zero_grad()
        _, loss_mb = train_step(model, scaler, data, target)
        loss = loss_mb.reduce_mean()
        optimizer.step()
    return loss


def test(model, loader):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in loader:
            loss_batch, correct_batch = test_step(model, data, target)
            test_loss += sum(loss_batch)
            correct += sum(correct_batch)
    return test_loss / len(loader.dataset), correct / len(loader.dataset)


parser = argparse.ArgumentParser()
parser.add_argument("--mp_parameters", type=str, default="")
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()
random.seed(1)
numpy.random.seed(1)
torch.manual_seed(1)
torch.set_num_threads(1)
smp.init()
kwargs = {"batch_size": 64, "shuffle": False, "drop_last": True}
if smp.local_rank() == 0:
    dataset1 = digits.torch_dataset(train=True)
smp.barrier()
dataset1 = digits.torch_dataset(train=True)
if smp.dp_size() > 1:
    dataset1 = torch.utils.data.Subset(dataset1, range(smp.dp_rank(), len(dataset1), smp.dp_size()))
train_loader = torch.utils.data.DataLoader(dataset1, **kwargs)
test_loader = torch.utils.data.DataLoader(digits.torch_dataset(train=False), **kwargs)
model = GroupedNet()
optimizer = optim.Adadelta(model.parameters(), lr=1.0)
model = smp.DistributedModel(model)
scaler = smp.amp.GradScaler()
optimizer = smp.DistributedOptimizer(optimizer)
scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
for epoch in range(args.epochs):
    loss = train(model, scaler, train_loader, optimizer)
    test_loss, accuracy = test(model, test_loader)
    scheduler.step()
local = os.path.join(os.environ["SM_MODEL_DIR"], "checkpoints")
if smp.local_rank() == 0:
    os.makedirs(local, exist_ok=True)
smp.barrier()
if smp.dp_rank() == 0:
    model_dict = model.local_state_dict()
    opt_dict = optimizer.local_state_dict()
    smp.save(
        {"model_state_dict": model_dict, "optimizer_state_dict": opt_dict},
        f"{local}/pt_mnist_checkpoint.pt",
        partial=True,
    )
smp.barrier()
print(
    f"rank {smp.rank()} of {smp.size()}: stage {smp.pp_rank()} of {smp.pp_size()}, replica {smp.dp_rank()} of {smp.dp_size()}"
)
if smp.mp_rank() == 0 and smp.dp_rank() == 0:
    print(f"loss={loss.item():.4f}; accuracy={accuracy:.4f};")
