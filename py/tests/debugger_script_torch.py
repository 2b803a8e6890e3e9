"""A user's script for PyTorch that knows nothing of Debugger, but for the case `own`."""

import json
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

KIND = sys.argv[1]


class Net(nn.Module):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.fc1, self.relu, self.fc2 = nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)

    def forward(self, samples):
        return self.fc2(self.relu(self.fc1(samples)))


class Critic(nn.Module):
    """One layer."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 1)

    def forward(self, samples):
        return self.fc(samples)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, critic, loss = Net(), Critic(), nn.CrossEntropyLoss()
    called = model
    if KIND == "compiled":
        # A graph that breaks at a callback would be an error.
        called = torch.compile(model, fullgraph=True, backend="aot_eager")
    elif KIND == "ddp":
        torch.distributed.init_process_group("gloo")
        called = nn.parallel.DistributedDataParallel(model)
    elif KIND == "own":
        import smdebug.pytorch as smd

        with open(os.environ["SMDEBUG_CONFIG_FILE_PATH"]) as config:
            folder = json.load(config)["LocalPath"]
        hook = smd.Hook(folder, save_config=smd.SaveConfig(save_interval=1))
        hook.register_module(model)
        hook.register_loss(loss)
    optimizer = torch.optim.SGD([*model.parameters(), *critic.parameters()], lr=0.1)
    samples, labels = torch.ones(5, 4), torch.zeros(5, dtype=torch.long)
    for step in range(6):
        optimizer.zero_grad()
        if KIND == "function":
            # No module is called.
            value = (samples @ model.fc1.weight.T).pow(2).mean()
        else:
            found = called(samples)
            value = loss(found, labels)
            print("LOSS", step, value.item())
        if KIND == "plain":
            value = value + F.mse_loss(found, torch.zeros(5, 2))
        elif KIND == "gan":
            value = value + critic(found).mean()
        value.backward()
        optimizer.step()
        if KIND == "plain" and step == 2:
            model.eval()
            with torch.no_grad():
                loss(model(samples), labels)
            model.train()
    if KIND == "plain":
        scripted = torch.jit.script(squares)
        assert scripted(samples, samples).item() == 0
        assert torch.compile(lambda a, b: loss(a, b), fullgraph=True, backend="aot_eager")(found, labels) > 0
    if KIND == "ddp":
        torch.distributed.destroy_process_group()


def squares(a, b):
    return F.mse_loss(a, b)


if __name__ == "__main__":
    if KIND == "modules":
        print(f"smdebug={'smdebug' in sys.modules}")
    else:
        main()
