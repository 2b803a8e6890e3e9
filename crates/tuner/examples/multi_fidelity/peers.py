"""Peers (and anything that speaks the JSON-lines protocol) on the table of this directory, by the
rules of the tuning harness:

    python peers.py HARNESS_DIRECTORY CONTENDER,CONTENDER FIRST-LAST OUT.jsonl

HARNESS_DIRECTORY holds run_mf.py, drive.py, serve.py and contenders.json. The lines that it adds to
OUT.jsonl are those of run_mf.py.
"""

import gzip, json, math, os, sys

harness, contenders, seeds, out = sys.argv[1:]
sys.path.insert(0, harness)
import problems, run_mf

HERE = os.path.dirname(os.path.abspath(__file__))
TARGETS = [0.913, 0.898, 0.891]


class Bench:
    def __init__(self):
        self.name, self.R, self.sig = "noisy_mnist", 81, 0.0
        with gzip.open(os.path.join(HERE, "table_noisy_mnist.jsonl.gz"), "rt") as file:
            rows = [json.loads(line) for line in file]
        C, I = problems.C, problems.I
        self.space = [
            C("lr", 0.05, 1.6, "Logarithmic"),
            C("weight_decay", 1e-4, 0.03, "Logarithmic"),
            C("dropout", 0.0, 0.7),
            I("width", 12, 108, "Logarithmic"),
            I("batch", 8, 128, "Logarithmic"),
        ]
        names = [parameter["name"] for parameter in self.space]
        self.grid = {name: sorted({row["config"][name] for row in rows}) for name in names}
        self.rows = {tuple(row["config"][name] for name in names): row for row in rows}

    def row(self, config):
        def nearest(parameter):
            name, scale = parameter["name"], math.log if parameter["scaling"] == "Logarithmic" else float
            return min(self.grid[name], key=lambda value: (abs(scale(value) - scale(config[name])), value))

        return self.rows[tuple(map(nearest, self.space))]

    def val(self, config, epoch):
        return self.row(config)["curve"][epoch - 1]

    def cost(self, config):
        return self.row(config)["cost"]


run_mf.TARGETS["noisy_mnist"] = TARGETS
first, last = map(int, seeds.split("-"))
bench = Bench()
for seed in range(first, last + 1):
    for contender in contenders.split(","):
        result = run_mf.simulate(contender, bench, seed, 4, 810.0, 0)
        with open(out, "a") as file:
            file.write(json.dumps(result) + "\n")
