"""One instance of a job that runs horovodrun: a worker is killed or hangs (the argument), and
after its host's cooldown another takes its place.

The instance appears to horovodrun as two hosts, as a host on which a worker failed is left out.
"""

import json
import os
import pathlib
import subprocess
import sys

import horovod_elastic_worker

HERE = pathlib.Path("/tmp/elastic")


def main(blow):
    HERE.mkdir()
    hosts = HERE / "hosts"
    # The second makes the worker wait, before the last epoch, for the host that is left out.
    for path in (hosts, HERE / "hosts.2"):
        path.write_text("localhost:1\n127.0.0.1:1\n")
    options = [
        "-np",
        "2",
        "--min-np",
        "1",
        "--max-np",
        "2",
        "--host-discovery-script",
        f"cat {hosts}",
        "--blacklist-cooldown-range",
        "2",
        "3",
    ]
    worker = [sys.executable, horovod_elastic_worker.__file__, str(HERE), blow]
    command = [sys.executable, "-m", "horovod.runner.launch", *options, *worker]
    subprocess.run(command, env={**os.environ, "SHOAL_COMM_HEARTBEAT": "3", "OMP_NUM_THREADS": "1"}, check=True)
    epochs = [json.loads(line) for line in (HERE / "log").read_text().splitlines()]
    assert [(it["size"], it["start_rank"], it["worlds"]) for it in epochs] == [(2, 0, 1), (1, 1, 2), (2, 1, 3)], epochs
    assert epochs[1]["pid"] == epochs[2]["pid"], "the worker that was left has kept its process"
    assert all(it["all"] and it["same"] and it["read"] == horovod_elastic_worker.SAMPLES for it in epochs), epochs
    print("2 -> 1 -> 2 workers", flush=True)


main(sys.argv[sys.argv.index("--blow") + 1])
