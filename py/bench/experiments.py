"""Metric points a second that a training script logs: SageMaker SDK v2's `Run.log_metric` against Shoal, and
MLflow's own client against its own server (one process with SQLite, as `mlflow server` starts by default),
in turns. Each client is a process; its clock starts before the first point and stops when all are stored.

`python experiments.py --shoal BINARY --sdk PYTHON --mlflow PYTHON [--points N] [--rounds N] [--clients N]`:
a release build of shoal, an interpreter with the SDK (`cargo xtask clients` prints one), and one with
`pip install mlflow`. MLflow is measured as `mlflow.log_metric` does it by default (a request for each
point), and with `synchronous=False` (batches in the background).
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

KINDS = ("shoal", "mlflow", "mlflow, asynchronous")


def log_to_shoal(points: int, client: int) -> float:
    """Seconds for points of four metrics in a run of its own."""
    import boto3
    from sagemaker.experiments import Run
    from sagemaker.session import Session

    session = Session(boto3.Session(region_name="us-east-1"))
    with Run(experiment_name="bench", run_name=f"run-{time.time_ns()}-{client}", sagemaker_session=session) as run:
        start = time.perf_counter()
        for point in range(points):
            run.log_metric(name=f"metric-{point % 4}", value=float(point), step=point // 4)
    # Leaving the run waits for its points.
    return time.perf_counter() - start


def log_to_mlflow(points: int, is_synchronous: bool) -> float:
    """The same."""
    import mlflow

    mlflow.set_tracking_uri(os.environ["SERVER"])
    mlflow.set_experiment("bench")
    with mlflow.start_run():
        start = time.perf_counter()
        for point in range(points):
            mlflow.log_metric(f"metric-{point % 4}", float(point), step=point // 4, synchronous=is_synchronous)
        mlflow.flush_async_logging()
        return time.perf_counter() - start


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def shoal_server(binary: str, folder: str):
    """A server, and the environment of its clients."""
    server = subprocess.Popen(
        [binary, "serve", "--data-dir", folder, "--listen", "127.0.0.1:0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not (Path(folder) / "address").exists():
        assert server.poll() is None, "the server has ended"
        time.sleep(0.05)
    printed = subprocess.run(
        [binary, "env", "--data-dir", folder, "--json"], capture_output=True, text=True, check=True
    ).stdout
    return server, json.loads(printed)


def mlflow_server(python: str, folder: str):
    """The same of MLflow."""
    port = free_port()
    server = subprocess.Popen(
        [python, "-m", "mlflow", "server", "--port", str(port), "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=1)
            return server, {"SERVER": url, "MLFLOW_ENABLE_ASYNC_LOGGING": "false"}
        except OSError:
            assert server.poll() is None, "the server has ended"
            time.sleep(0.2)


def measure(kind: str, python: str, environment: dict, points: int, clients: int) -> float:
    """Points a second of all clients together."""
    command = [python, __file__, "--client", kind, "--points", str(points)]
    processes = [
        subprocess.Popen(
            [*command, "--number", str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        for number in range(clients)
    ]
    outputs = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    return sum(points / float(output.split()[-1]) for output, _ in outputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shoal", help="the binary")
    parser.add_argument("--sdk", help="an interpreter with SDK v2")
    parser.add_argument("--mlflow", help="an interpreter with MLflow")
    parser.add_argument("--points", type=int, default=2000, help="of a client in a turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=1, help="at once")
    parser.add_argument("--client", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.client == "shoal":
        return print(log_to_shoal(args.points, args.number))
    if args.client:
        return print(log_to_mlflow(args.points, args.client == "mlflow"))
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        servers = {"shoal": (*shoal_server(args.shoal, ours), args.sdk)}
        servers["mlflow"] = servers["mlflow, asynchronous"] = (*mlflow_server(args.mlflow, theirs), args.mlflow)
        rates = {kind: [] for kind in KINDS}
        try:
            for turn in range(args.rounds + 1):
                for kind in KINDS:
                    _, environment, python = servers[kind]
                    rate = measure(kind, python, environment, args.points, args.clients)
                    print(f"turn {turn}: {kind} {rate:.0f} points/s", file=sys.stderr)
                    # The first turn opens files and fills caches.
                    rates[kind] += [rate] * (turn > 0)
        finally:
            servers["shoal"][0].terminate()
            # Its workers are processes of their own.
            os.killpg(servers["mlflow"][0].pid, signal.SIGTERM)
    for kind, found in rates.items():
        print(f"{kind}: {statistics.median(found):.0f} points/s ({min(found):.0f} to {max(found):.0f})")
    base = statistics.median(rates["shoal"])
    for kind in KINDS[1:]:
        print(f"shoal : {kind} = {base / statistics.median(rates[kind]):.1f}")


if __name__ == "__main__":
    main()
