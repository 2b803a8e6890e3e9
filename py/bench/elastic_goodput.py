"""Goodput of elastic training under a seeded schedule of kills: useful samples per second against
an undisturbed run.

    python py/bench/elastic_goodput.py --ranks 3 --seconds 100 --every 20

A rank is killed (SIGKILL) each `--every` seconds on average. One more process than ranks waits at
the meeting place, so that a lost rank is replaced at once, and another one is started then. Prints
one JSON line: samples per second of both runs, their ratio, and how long each re-forming took, from
the kill's detection to the first step.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

BATCH, WORKERS, WIDTH = 64, 6, 512


def train_rank(seconds: float, out: str) -> None:
    """One rank: a perceptron, until rank 0's time is over."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import shoal.torch
    from shoal.elastic import Samples
    from shoal.torch.elastic import State, run

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, WIDTH),
        torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = torch.randn(100_000, 256)
    state = State(
        model=model,
        optimizer=optimizer,
        samples=Samples(len(data), workers=WORKERS, batch=BATCH),
        useful=0,
        begun=0.0,
        over=False,
    )

    def train(state) -> None:
        # It has loaded everything at a low priority, as a spare on a machine of its own would not
        # disturb the others.
        if os.geteuid() == 0:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        world = state.world
        net = DistributedDataParallel(state.model, gradient_as_bucket_view=True)
        while not state.over:
            total = state.samples.total()
            optimizer.zero_grad()
            for part in state.samples.parts(world.rank, world.size):
                with net.no_sync() if not part.communicates else torch.enable_grad():
                    outputs = net(data[part.indices])
                    (outputs.square().sum() * (world.size / total)).backward()
            optimizer.step()
            state.samples.finish()
            now = torch.tensor([time.time()], dtype=torch.float64)
            dist.broadcast(now, 0)
            if state.begun == 0.0:
                state.begun = now.item()
            state.useful += total
            state.over = now.item() - state.begun > seconds
            state.commit()
        if world.rank == 0:
            with open(out, "w") as file:
                json.dump({"useful": state.useful, "seconds": now.item() - state.begun}, file)

    run(train, state)
    assert shoal.torch is not None


class Job:
    """The processes of one run."""

    def __init__(self, ranks: int, seconds: float, directory: str, name: str):
        self.directory, self.name, self.ranks, self.seconds = directory, name, ranks, seconds
        self.out, self.count = os.path.join(directory, f"{name}.json"), 0
        self.living = [self.start(rank, False) for rank in range(ranks)]
        self.waiting = [self.start(0, True)]
        # Where each rank is killed before the next one has loaded torch, none is left that has the
        # state, and the others wait.
        self.until = time.time() + 3 * seconds + 60

    def start(self, rank: int, joins: bool) -> subprocess.Popen:
        self.count += 1
        env = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(self.ranks),
            "SHOAL_COMM_DIRECTORY": os.path.join(self.directory, self.name),
            "SHOAL_COMM_JOINS": str(int(joins)),
            "SHOAL_ELASTIC_MOST": str(self.ranks),
            "OMP_NUM_THREADS": "1",
        }
        log = open(os.path.join(self.directory, f"{self.name}.{self.count}.log"), "w")
        nice = ["nice", "-n", "19"] if joins else []
        argv = [*nice, sys.executable, __file__, "--rank", "--seconds", str(self.seconds), "--out", self.out]
        return subprocess.Popen(argv, env=env, stdout=log, stderr=log)

    def replace(self, victim: int) -> None:
        """Kills one; the process that waits takes its place, and another one waits."""
        self.living[victim].send_signal(signal.SIGKILL)
        self.living[victim].wait()
        self.living[victim] = self.waiting.pop()
        self.waiting.append(self.start(0, True))

    def end(self) -> dict:
        while not os.path.exists(self.out):
            over = all(it.poll() is not None for it in self.living)
            if over or time.time() > self.until:
                for it in self.living + self.waiting:
                    it.kill()
                why = (
                    "all ranks ended without a result"
                    if over
                    else "no end in sight; with more seconds between kills (--every), processes have time to start"
                )
                sys.exit(f"{self.logs()[-4000:]}\n{self.name}: {why}")
            time.sleep(0.2)
        for it in self.living:
            it.wait(30)
        for it in self.waiting:
            it.kill()
            it.wait()
        with open(self.out) as file:
            return json.load(file)

    def logs(self) -> str:
        texts = []
        for number in range(1, self.count + 1):
            with open(os.path.join(self.directory, f"{self.name}.{number}.log")) as file:
                texts.append(file.read())
        return "\n".join(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--every", type=float, default=20, help="seconds between two kills, on average")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        return train_rank(args.seconds, args.out)
    choose = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as directory:
        calm = Job(args.ranks, args.seconds, directory, "calm").end()
        job = Job(args.ranks, args.seconds, directory, "disturbed")
        kills, next_kill = 0, time.time() + args.every * choose.uniform(0.8, 1.2) + 5
        while not os.path.exists(job.out) and any(it.poll() is None for it in job.living) and time.time() < job.until:
            if time.time() >= next_kill:
                job.replace(choose.randrange(args.ranks))
                kills += 1
                next_kill = time.time() + args.every * choose.uniform(0.8, 1.2)
            time.sleep(0.1)
        rough = job.end()
        took = [int(it) for it in re.findall(r"shoal.elastic: \d+ -> \d+ ranks in (\d+) ms", job.logs())]
    rate = [it["useful"] / it["seconds"] for it in (calm, rough)]
    answer = {
        "ranks": args.ranks,
        "kills": kills,
        "undisturbed": round(rate[0]),
        "disturbed": round(rate[1]),
        "goodput": round(rate[1] / rate[0], 4),
        "re-forming ms": took,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
