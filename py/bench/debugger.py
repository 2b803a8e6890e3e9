"""What the Debugger's hook costs a step of training, with the default configuration (losses every 500
steps): the hook that attaches itself, and AWS's smdebug, each in turns with none.

`python debugger.py [--real DIRECTORY] [--model mlp|cnn] [--rounds N]` with torch; MNIST is read from
../../shared/data/mnist, or numbers of the same shapes take its place. `--real` is a directory with
smdebug 1.0.34 and what it needs: `pip install --target DIRECTORY --no-deps smdebug==1.0.34
protobuf==3.20.3 pyinstrument==3.4.2 pyinstrument-cext "setuptools<81" six requests psutil packaging`
and then boto3 and pandas with what they need, in which one line is
changed: `tostring` to `tobytes` in smdebug/core/tfevent/util.py.

A process has two models alike, one with the hook and one without, which do `BLOCK` steps in turns
with one thread. Of a process counts the first decile of the blocks' CPU time of a step: other
programs on the machine only make blocks slower, by the processor's caches. Prints medians over the
processes in microseconds.
"""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[2] / "shared/data/mnist/train-images-idx3-ubyte.gz"
BLOCK, TURNS, WARM, BATCH = 10, 120, 6, 128


def pictures(torch):
    """10000 of MNIST's, or random ones."""
    if not DATA.exists():
        return torch.rand(10000, 1, 28, 28)
    content = bytearray(gzip.open(DATA).read(16 + 10000 * 784))
    return torch.frombuffer(content, dtype=torch.uint8, offset=16).view(-1, 1, 28, 28).float() / 255


def model_of(name, nn):
    """A model of that name."""
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    convolutions = (nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(256, 10))


def train(kind, name) -> None:
    """One process: prints the CPU time of a step without and with the hook, in microseconds."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    samples, labels = pictures(torch), torch.randint(10, (10000,))
    cases = []
    # The hook looks at what is called first.
    for is_hooked in (True, False):
        torch.manual_seed(0)
        model, loss = model_of(name, nn), nn.CrossEntropyLoss()
        if kind == "real" and is_hooked:
            import smdebug.pytorch as smd

            hook = smd.Hook.create_from_json_file()
            hook.register_module(model)
            hook.register_loss(loss)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        cases.append((is_hooked, model, loss, optimizer, []))
    backward = torch.Tensor.backward
    without = getattr(backward, "__wrapped__", backward)
    for turn in range(WARM + TURNS):
        # In either order: the second one finds the samples in the processor's cache.
        for is_hooked, model, loss, optimizer, taken in cases if turn % 2 == 0 else cases[::-1]:
            # Without the hook neither of what it has in torch's place is called.
            compute = loss if is_hooked else lambda *given, loss=loss: nn.Module.__call__(loss, *given)
            go = backward if is_hooked else without
            began = time.thread_time()
            for step in range(BLOCK):
                at = (turn * BLOCK + step) * BATCH % (10000 - BATCH)
                optimizer.zero_grad()
                go(compute(model(samples[at : at + BATCH]), labels[at : at + BATCH]))
                optimizer.step()
            if turn >= WARM:
                taken.append((time.thread_time() - began) / BLOCK * 1e6)
    print("TAKEN", *(statistics.quantiles(cases[at][-1], n=10)[0] for at in (1, 0)))


def process(kind, name, real) -> list[float]:
    """What a process measured, without and with the hook."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "hook.json")
        config.write_text(json.dumps({"LocalPath": f"{folder}/tensors"}))
        paths = [real] if kind == "real" else [HERE.parents[1] / "crates/agent/python/start", HERE.parent / "python"]
        more = {"SMDEBUG_CONFIG_FILE_PATH": str(config), "PYTHONPATH": os.pathsep.join(map(str, paths))}
        command = [sys.executable, __file__, "--process", kind, "--model", name]
        done = subprocess.run(command, env=os.environ | more, capture_output=True, text=True, check=False)
        lines = [line.split() for line in done.stdout.splitlines() if line.startswith("TAKEN")]
        saved = sorted(one.name.lstrip("0") for one in Path(folder).glob("tensors/events/*"))
        if not lines or saved != ["", "1000", "500"]:
            sys.exit(f"{kind}: the steps {saved} were saved\n{done.stderr}")
        return [float(one) for one in lines[0][1:]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--real", help="a directory with AWS's smdebug")
    parser.add_argument("--model", choices=("mlp", "cnn"), default="cnn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--process", choices=("ours", "real"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        train(options.process, options.model)
        return
    kinds = ["ours"] + ["real"] * bool(options.real)
    taken = {kind: [] for kind in kinds}
    for _ in range(options.rounds):
        for kind in kinds:
            taken[kind].append(process(kind, options.model, options.real))
    for kind in kinds:
        without, more = (statistics.median(one) for one in zip(*((a, b - a) for a, b in taken[kind]), strict=True))
        print(f"{kind}: a step without a hook {without:.1f} us, the hook {more:+.1f} us, {100 * more / without:+.2f} %")


if __name__ == "__main__":
    main()
