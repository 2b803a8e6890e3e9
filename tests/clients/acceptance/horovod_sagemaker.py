"""The calls of SageMaker's PyTorch example with Horovod on MNIST, in its order; without
`.cuda()`.
"""

import argparse
import os

import digits
import horovod.torch as hvd
import torch
import torch.nn.functional as F


def metric_average(val, name):
    return hvd.allreduce(torch.tensor(val), name=name).item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--model-dir", type=str, default=os.environ["SM_MODEL_DIR"])
    parser.add_argument("--data-dir", type=str, default=os.environ["SM_CHANNEL_TRAIN"])
    args = parser.parse_args()
    hvd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    dataset = digits.torch_dataset(train=True)
    sampler = torch.utils.data.distributed.DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
    loader = torch.utils.data.DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    model = digits.torch_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * hvd.size(), momentum=0.5)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for epoch in range(1, args.epochs + 1):
        model.train()
        sampler.set_epoch(epoch)
        for data, target in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), target)
            loss.backward()
            optimizer.step()
    accuracy = metric_average(digits.accuracy_of(model), "avg_accuracy")
    print(f"rank {hvd.rank()} of {hvd.size()}")
    if hvd.rank() == 0:
        print(f"accuracy={accuracy:.4f};")
        torch.save(model.state_dict(), os.path.join(args.model_dir, "model.pt"))
