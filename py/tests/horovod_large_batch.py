"""A program for horovod.torch, in a job that is simulated: two ranks as four workers end with
the weights that four ranks of DistributedDataParallel have.
"""

import os

import horovod.torch as hvd
import torch
import torch_large_batch as checks
from horovod_expect import raises
from torch import nn
from torch.nn.utils import clip_grad_norm_

import shoal.backends


def main() -> None:
    torch.set_num_threads(1)
    # What an installed package does when torch is imported.
    shoal.backends.register()
    hvd.init()
    assert os.environ["SHOAL_SIMULATE_INSTANCES"] == "2" and hvd.size() == 2
    # As `trains_as_many` and as `script`: plain, then with clipping, a loss scale and a schedule.
    for name in ("sgd", "script"):
        net = checks.network()
        # The four workers' rate is 0.2, of which a script that multiplies by the two ranks makes
        # half.
        inner = torch.optim.SGD(net.parameters(), lr=0.05 * hvd.size(), momentum=0.9)
        optimizer = hvd.DistributedOptimizer(inner, named_parameters=net.named_parameters())
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5) if name == "script" else None
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3) if name == "script" else None
        train(optimizer, net, scheduler, scaler, (11, 70) if name == "script" else ())
        wanted = torch.load(os.path.join(os.environ["LARGE_BATCH"], f"{name}.pt"))
        for part, value in net.state_dict().items():
            torch.testing.assert_close(value, wanted["weights"][part], atol=1e-6, rtol=1e-6)
        if scheduler is not None:
            assert (scaler.get_scale(), 2 * optimizer.param_groups[0]["lr"]) == (wanted["scale"], wanted["rate"])
    with raises(ValueError, match="op=Adasum"):
        hvd.DistributedOptimizer(torch.optim.SGD(checks.network().parameters(), lr=0.2), op=hvd.Adasum)
    hvd.shutdown()


def train(optimizer, model, scheduler, scaler, bad) -> None:
    """As Horovod's documents say it is written: `synchronize`, then what reads gradients, then
    `step` without it.
    """
    samples = checks.dataset()
    sampler = torch.utils.data.DistributedSampler(samples, hvd.size(), hvd.rank(), seed=5)
    loader = torch.utils.data.DataLoader(samples, batch_size=checks.BATCH, sampler=sampler)
    for epoch in range(checks.EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, index, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), labels)
            if epoch == 0 and any(it in bad for it in index.tolist()):
                loss = loss * torch.inf
            if scaler is None:
                loss.backward()
                optimizer.step()
                continue
            scaler.scale(loss).backward()
            optimizer.synchronize()
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 0.05)
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
            scaler.update()
            scheduler.step()


if __name__ == "__main__":
    main()
