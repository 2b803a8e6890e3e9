"""Slurm by way of Shoal beside Slurm alone, on a cluster of namespaces: from submission to the first
line, in turns; then a tuning job of trials that do nothing. Prints a table.

    SHOAL_BIN=target/release/shoal python measure_slurm.py [TURNS]
"""

import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import slurm_cluster
from house import House
from jobs import Jobs
from tuning_jobs import Tuning

LINE = "echo first; sleep 1"


def bare(cluster, directory, turn):
    """Seconds until the line of a batch job is in its file, which is looked at each millisecond."""
    out = directory / f"out-{turn}"
    begin = time.monotonic()
    command = ["sbatch", "--parsable", "--ntasks=1", "--cpus-per-task=2", f"--output={out}"]
    # As an agent is: a step on the first node of a job.
    command += ["--wrap", f"srun --ntasks=1 /bin/sh -c '{LINE}'"]
    subprocess.run(command, env=cluster.environment, check=True, capture_output=True)
    while not (out.exists() and "first" in out.read_text()):
        time.sleep(0.001)
    return time.monotonic() - begin


def by_shoal(jobs, turn):
    """Seconds until the line of a training job is in its log, which is asked for again and again."""
    begin = time.monotonic()
    name = jobs.command(LINE)
    while True:
        try:
            if "first" in jobs.lines(name):
                break
        except jobs.logs_client.exceptions.ResourceNotFoundException:
            pass
    passed = time.monotonic() - begin
    jobs.completed(name)
    return passed


def main():
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    if problem := slurm_cluster.missing():
        sys.exit(problem)
    with tempfile.TemporaryDirectory() as directory:
        cluster = slurm_cluster.Cluster(pathlib.Path(directory) / "cluster").up()
        house = House(settings=cluster.settings())
        try:
            jobs = Jobs(house)
            times = {"Slurm": [], "Shoal": []}
            for turn in range(turns):
                times["Slurm"].append(bare(cluster, pathlib.Path(directory), turn))
                times["Shoal"].append(by_shoal(jobs, turn))
            for name, of in times.items():
                print(f"{name}: {1000 * statistics.median(of):.0f} ms ({1000 * min(of):.0f} to {1000 * max(of):.0f})")
            tuning = Tuning(jobs)
            definition = tuning.definition(epochs=1)
            begin = time.monotonic()
            name = tuning.create(tuning.request(definition, jobs=100, parallel=1))
            tuning.completed(name)
            print(f"100 trials, one at a time: {time.monotonic() - begin:.1f} s")
            count = cluster.call("squeue", "-h", "--states=all", "-o", "%j").split()
            print(f"allocations of the 100 trials: {len(count) - 2 * turns}")
        finally:
            house.close()
            cluster.down()


if __name__ == "__main__":
    main()
