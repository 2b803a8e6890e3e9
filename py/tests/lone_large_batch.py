"""A process that trains alone, in a job that is simulated as 4 workers: its steps have 4 passes,
and batch statistics move as the job says.
"""

import json
import os

import torch
import torch_large_batch as checks

import shoal.backends


def main() -> None:
    torch.set_num_threads(1)
    # What an installed package does when torch is imported.
    shoal.backends.register()
    net = checks.network(norm=True)
    # Four workers: by the size of one rank, a rate is a quarter of theirs.
    scaled = os.environ.get("SHOAL_SIMULATE_RATE") == "by_size"
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1 / 4 if scaled else 0.1)
    inputs, _, labels = checks.dataset().tensors
    before = [it.clone() for it in net.parameters()]
    for number in range(8):
        part = slice(4 * number, 4 * number + 4)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(inputs[part].double()), labels[part].double()).backward()
        optimizer.step()
        moved = any(not torch.equal(old, new) for old, new in zip(before, net.parameters(), strict=True))
        assert moved == (number >= 3), number
    assert optimizer.param_groups[0]["lr"] == (0.1 / 4 if scaled else 0.1)
    print(json.dumps([it.flatten().tolist() for it in net.parameters()]))
    first_only = os.environ.get("SHOAL_SIMULATE_BATCH_STATISTICS") == "worker_0"
    assert int(net[1].num_batches_tracked) == (2 if first_only else 8), net[1].num_batches_tracked


if __name__ == "__main__":
    main()
