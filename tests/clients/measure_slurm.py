"""Slurm by way of Shoal beside Slurm alone, on a cluster of namespaces: from submission to the first
line, in turns; then a tuning job of trials that do nothing. Slurm starts jobs at the cycles of its
scheduler, two seconds apart here, so that submissions come at random times, and the time from Slurm's
start of the job is printed, too. Prints a table.

    SHOAL_BIN=target/release/shoal python measure_slurm.py [TURNS]
"""

import datetime
import pathlib
import random
import re
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


def by_shoal(jobs):
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


def started(cluster):
    """When Slurm started the last job, in seconds since the epoch."""
    log = (cluster.root / "slurmctld.log").read_text()
    time_of_start = re.findall(r"\[(\S+)\] sched\S*(?: _start_job)?: (?:Started|Allocate) JobId", log)[-1]
    return datetime.datetime.fromisoformat(time_of_start).timestamp()


def do_nothing(jobs, count):
    """Seconds that a tuning job of `count` trials takes, one at a time."""
    tuning = Tuning(jobs)
    jobs.put("tuning/code/nothing.sh", "echo 'loss=0.5;'\n")
    definition = tuning.definition()
    definition["StaticHyperParameters"]["sagemaker_program"] = "nothing.sh"
    begin = time.monotonic()
    name = tuning.create(tuning.request(definition, jobs=count, parallel=1))
    tuning.completed(name)
    return time.monotonic() - begin


def show(times):
    for name, of in times.items():
        print(f"{name}: {1000 * statistics.median(of):.0f} ms ({1000 * min(of):.0f} to {1000 * max(of):.0f})")


def main():
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    if problem := slurm_cluster.missing():
        sys.exit(problem)
    with tempfile.TemporaryDirectory() as directory:
        cluster = slurm_cluster.Cluster(pathlib.Path(directory) / "cluster").up()
        house = House(settings=cluster.settings())
        try:
            jobs = Jobs(house)
            times = {name: [] for name in ("Slurm", "Shoal", "Slurm, from its start", "Shoal, from Slurm's start")}
            for turn in range(turns):
                for name, measured in (
                    ("Slurm", lambda: bare(cluster, pathlib.Path(directory), turn)),
                    ("Shoal", lambda: by_shoal(jobs)),
                ):
                    cluster.until_idle()
                    time.sleep(random.uniform(0, 2))
                    begin = time.time()
                    took = measured()
                    times[name].append(took)
                    start = "its" if name == "Slurm" else "Slurm's"
                    times[f"{name}, from {start} start"].append(begin + took - started(cluster))
            show(times)
            begin = time.time()
            took = do_nothing(jobs, 100)
            of_slurm = started(cluster) - begin
            print(
                f"100 trials, one at a time: {took:.1f} s, {took - of_slurm:.1f} s from Slurm's start of the allocation"
            )
            count = cluster.call("squeue", "-h", "--states=all", "-o", "%j").split()
            print(f"allocations of the 100 trials: {len(count) - 2 * turns}")
        finally:
            house.close()
            cluster.down()


if __name__ == "__main__":
    main()
