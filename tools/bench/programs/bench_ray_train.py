"""The peer of `cargo xtask bench start`: Ray Train on one worker with one processor, which
prints its first line.

    bench_ray_train.py DIRECTORY

Prints seconds to the first line of the worker's function, by its own clock: from `ray.init()`,
then from a second `fit()` on the same Ray; and Ray's version. Imports are not in them.
"""

import os
import sys
import time

os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

directory = sys.argv[1]


def work(config):
    print("the first line")
    with open(config["file"], "w") as file:
        file.write(str(time.time()))


def first_line(name):
    """When, by this machine's clock."""
    file = os.path.join(directory, f"{name}.first")
    trainer = DataParallelTrainer(
        work,
        train_loop_config={"file": file},
        scaling_config=ScalingConfig(num_workers=1, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(name=name, storage_path=directory),
    )
    trainer.fit()
    with open(file) as file:
        return float(file.read())


began = time.time()
ray.init(num_cpus=2, log_to_driver=False, logging_level="ERROR")
cold = first_line("cold") - began
began = time.time()
warm = first_line("warm") - began
ray.shutdown()
print(f"cold={cold} warm={warm} version={ray.__version__}")
