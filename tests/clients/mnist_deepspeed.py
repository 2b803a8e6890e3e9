"""A user's script: handwritten digits by DeepSpeed, whose ZeRO (stage 1) keeps a share of the
optimizer's state on each process.

Each process has its share of every batch, so the losses are those of one process up to rounding;
the first one trains alone, too, to show that.
"""

import argparse
import json
import os

import deepspeed
import torch
import torch.distributed as dist
from mnist_ddp import samples
from torch import nn


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def batches(steps, batch, rank=0, size=1):
    pictures, labels = samples("train")
    for step in range(steps):
        share = torch.arange(step * batch, (step + 1) * batch).remainder(len(labels)).chunk(size)[rank]
        yield pictures[share], labels[share]


def alone(steps, batch):
    model, optimizer = network()
    losses = []
    for pictures, labels in batches(steps, batch):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch_size", type=int, default=128)
    given, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model, optimizer = network()
    config = {
        "train_batch_size": given.batch_size,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        # It clips at 1 by itself, and the training alone does not.
        "gradient_clipping": 0.0,
    }
    engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    losses = []
    for pictures, labels in batches(given.steps, given.batch_size, rank, size):
        loss = nn.functional.cross_entropy(engine(pictures), labels)
        engine.backward(loss)
        engine.step()
        whole = loss.detach() / size
        dist.all_reduce(whole)
        losses.append(whole.item())
    state = sum(value.numel() for states in optimizer.optimizer.state.values() for value in states.values())
    weights = sum(weights.numel() for weights in model.parameters())
    print(
        f"rank {rank} of {size} on {os.environ['SM_CURRENT_HOST']}: state of {state / weights:.2f} numbers for a weight",
        flush=True,
    )
    if rank == 0:
        pictures, labels = samples("t10k")
        accuracy = (engine.module(pictures).argmax(1) == labels).float().mean().item()
        print(f"loss={losses[-1]:.5f}; accuracy={accuracy:.4f};")
        with open(os.path.join(os.environ["SM_MODEL_DIR"], "losses.json"), "w") as file:
            json.dump({"of_all": losses, "alone": alone(given.steps, given.batch_size)}, file)
        torch.save(engine.module.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
    dist.destroy_process_group()
