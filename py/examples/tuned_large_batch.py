"""Four times the batch, tuned: one trial of a Hyperband job over optimizer, learning rate and warm-up. Handwritten digits (MNIST), on one instance as on 4.

    shoal tune --channel train=../shared/data/mnist --strategy hyperband --trials 24 --parallel 2 --seed 1 --metric 'loss=test loss ([0-9.]+)' --minimize loss \\
        --max-resource 9 --range rate=0.001..1,log --range warmup=0..0.3 --choice optimizer=sgd,lars,lamb py/examples/tuned_large_batch.py

The batch of each worker and the size of the cluster are hyperparameters, too: `--choice batch=16,32,64 --choice workers=2,4,8`, on the one instance.
`--workers` (4) is the number of workers that it trains as, unless `SHOAL_SIMULATE_INSTANCES` is set; a report of the test loss follows each of 9 parts of the epoch, which is what Hyperband compares.
`torchrun --nproc-per-node 4 py/examples/tuned_large_batch.py --data DIRECTORY --rate ...` trains on 4 ranks what one instance simulated.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from mnist_ddp import images, network
from torch import nn

import shoal.torch  # noqa: F401 (registers the backend)
from shoal.torch import LargeBatch, LargeBatchSampler
from shoal.torch.optim import LAMB, LARS, Schedule, layers, polynomial

REPORTS = 9
MAKERS = {
    "sgd": lambda model, rate: torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9),
    "lars": lambda model, rate: LARS(layers(model), lr=10 * rate, weight_decay=1e-4, trust=0.005),
    "lamb": lambda model, rate: LAMB(layers(model), lr=rate),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("SM_CHANNEL_TRAIN"), help="directory with the four files of MNIST"
    )
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32, help="samples of each worker in a step")
    parser.add_argument("--samples", type=int, default=6_000, help="training pictures")
    parser.add_argument("--optimizer", choices=MAKERS, default="sgd")
    parser.add_argument("--rate", type=float, default=0.005)
    parser.add_argument("--warmup", type=float, default=0.0, help="part of the epoch in which the rate grows linearly")
    args = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    if ranks > 1:
        dist.init_process_group("shoal")
    torch.manual_seed(0)
    pictures, labels = (it[: args.samples] for it in images(args.data, "train"))
    test, answers = images(args.data, "t10k")
    model = network()
    optimizer = LargeBatch(MAKERS[args.optimizer](model, args.rate), args.workers, model=model)
    batches = list(LargeBatchSampler(pictures, args.batch, args.workers))
    steps = len(batches) * ranks // args.workers
    schedule = Schedule(optimizer, warmup=round(args.warmup * steps), start=0.0, decay=polynomial(steps, 1))
    reported = 0
    for number, batch in enumerate(batches, 1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pictures[batch]), labels[batch]).backward()
        optimizer.step()
        schedule.step()
        if number * REPORTS // len(batches) > reported and int(os.environ.get("RANK", 0)) == 0:
            reported += 1
            with torch.no_grad():
                scores = model(test)
            right = (scores.argmax(1) == answers).float().mean()
            print(
                f"step {optimizer.steps} of {steps}: test loss {nn.functional.cross_entropy(scores, answers):.4f}, accuracy {right:.4f}",
                flush=True,
            )
    if "SM_MODEL_DIR" in os.environ:
        torch.save(model.state_dict(), Path(os.environ["SM_MODEL_DIR"]) / "model.pt")
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
