"""The calls of Horovod's elastic PyTorch example on MNIST, in its order."""

import os

import digits
import horovod.torch as hvd
import torch
import torch.nn.functional as F

hvd.init()
torch.manual_seed(42)
torch.set_num_threads(1)
dataset = digits.torch_dataset(train=True)
sampler = hvd.elastic.ElasticSampler(dataset, shuffle=True)
loader = torch.utils.data.DataLoader(dataset, batch_size=32, sampler=sampler)
model = digits.torch_model()
rate = 0.02
optimizer = torch.optim.SGD(model.parameters(), lr=rate * hvd.size(), momentum=0.5)
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), compression=hvd.Compression.none
)


def train_one_epoch(state):
    model.train()
    begun = state.batch
    for index, (data, target) in enumerate(loader):
        state.batch = begun + index
        if state.batch % 10 == 0 and state.batch > 0:
            state.check_host_updates()
            state.commit()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        state.sampler.record_batch(index, 32)
    state.batch = 0


@hvd.elastic.run
def full_train(state):
    while state.epoch < 3:
        train_one_epoch(state)
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)
        state.commit()


def on_state_reset():
    for group in optimizer.param_groups:
        group["lr"] = rate * hvd.size()


state = hvd.elastic.TorchState(model, optimizer, epoch=1, batch=0, sampler=sampler)
state.register_reset_callbacks([on_state_reset])
full_train(state)
print(f"rank {hvd.rank()} of {hvd.size()}")
if hvd.rank() == 0:
    print(f"accuracy={digits.accuracy_of(model):.4f};")
    torch.save(model.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
