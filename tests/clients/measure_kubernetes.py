"""Kubernetes by way of Shoal beside the API server alone, on the tests' cluster: from creation to the
first line, in turns; then a tuning job of trials that do nothing. Prints a table. The nodes' agent is
the tests' own, which starts a container faster than a kubelet with a container runtime does.

    SHOAL_BIN=target/release/shoal python measure_kubernetes.py [TURNS]
"""

import pathlib
import sys
import tempfile
import time

import k8s_cluster
from house import SHOAL, House
from jobs import Jobs
from measure_slurm import LINE, by_shoal, do_nothing, show


def bare(cluster, turn):
    """Seconds until the line of a pod is in its log, which is looked at each millisecond."""
    container = {"name": "c", "image": "host", "command": ["/bin/sh", "-c", LINE]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"bare-{turn}"},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    begin = time.monotonic()
    created = cluster.api.post(f"/api/v1/namespaces/{k8s_cluster.NAMESPACE}/pods", pod)
    pattern = f"n*/pods/{created['metadata']['uid']}/c-0.log"
    while not any("first" in path.read_text() for path in cluster.root.glob(pattern)):
        time.sleep(0.001)
    return time.monotonic() - begin


def main():
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    if problem := k8s_cluster.missing():
        sys.exit(problem)
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory).chmod(0o755)
        cluster = k8s_cluster.Cluster(directory).up()
        house = House(settings=cluster.settings(SHOAL))
        try:
            jobs = Jobs(house)
            times = {"Kubernetes": [], "Shoal": []}
            for turn in range(turns):
                times["Kubernetes"].append(bare(cluster, turn))
                times["Shoal"].append(by_shoal(jobs))
            show(times)
            print(f"100 trials, one at a time: {do_nothing(jobs, 100):.1f} s")
        finally:
            house.close()
            cluster.down()


if __name__ == "__main__":
    main()
