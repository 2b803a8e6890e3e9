"""A user's script for PyTorch that knows nothing of a profiler; one step waits long for its batch."""

import sys
import time

import torch

slow, steps = int(sys.argv[1]), int(sys.argv[2])


class Samples(torch.utils.data.Dataset):
    """Random samples, of which one comes late."""

    def __len__(self):
        return 8 * steps

    def __getitem__(self, at):
        time.sleep(0.2 if at == 8 * slow else 0.0005)
        return torch.randn(16), at % 2


def main():
    torch.set_num_threads(1)
    model = torch.nn.Linear(16, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # Shuffled nothing: the late sample is in the step of its number.
    for samples, labels in torch.utils.data.DataLoader(Samples(), batch_size=8, num_workers=0):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(samples), labels).backward()
        time.sleep(0.01)
        optimizer.step()


main()
