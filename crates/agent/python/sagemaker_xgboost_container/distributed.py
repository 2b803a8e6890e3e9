"""Training on several instances by XGBoost's own ring of instances (rabit), which is made of
those that have data.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import xgboost

try:
    from xgboost.tracker import RabitTracker
except ImportError:
    RabitTracker = None  # XGBoost 0.90

_FIRST_PORT = 9099
_RETRY_S = 0.2
_PATIENCE_S = 900


def rabit_run(
    exec_fun: Callable[..., Any],
    args: dict,
    include_in_training: bool,
    hosts: Sequence[str],
    current_host: str,
    first_port: int | None = None,
    second_port: int | None = None,
    max_connect_attempts: int | None = None,
    connect_retry_timeout: float = _RETRY_S,
    update_rabit_args: bool = False,
) -> None:
    """Calls `exec_fun(**args)` on every instance with `include_in_training`, in one ring; returns
    on the others. With `update_rabit_args` the arguments get `is_master`, which is true on one of
    them. The first host brings them together, at `first_port`; the ring meets at `second_port`, or
    at a free one.
    """
    hosts = sorted(hosts)
    if len(hosts) == 1:
        if not include_in_training:
            raise RuntimeError("No hosts received training data.")
        exec_fun(**({**args, "is_master": True} if update_rabit_args else args))
        return
    if RabitTracker is None:
        raise RuntimeError(
            f"XGBoost {xgboost.__version__} brings nothing by which instances meet; use an image of XGBoost 1.0 or newer, or one instance"
        )
    address = (_address(hosts[0]), first_port or _FIRST_PORT)
    ring = None
    if current_host == hosts[0]:
        told, ring = _bring_together(hosts, include_in_training, address, second_port)
    else:
        attempts = max_connect_attempts or int(_PATIENCE_S / connect_retry_timeout)
        told = _report(current_host, include_in_training, address, attempts, connect_retry_timeout)
    if not told["members"]:
        raise RuntimeError("No hosts received training data.")
    if include_in_training:
        _start({**told["worker"], "DMLC_TASK_ID": f"{told['members'].index(current_host):05}"})
        try:
            arguments = {**args, "is_master": _ring().get_rank() == 0} if update_rabit_args else args
            exec_fun(**arguments)
        finally:
            _ring().finalize()
    if ring is not None:
        ring.wait_for() if hasattr(ring, "wait_for") else ring.join()


def _ring():
    """The module of the ring: its name has changed."""
    if hasattr(RabitTracker, "slave_envs"):
        return xgboost.rabit
    from xgboost import collective

    return collective


def _start(variables: dict[str, Any]) -> None:
    if hasattr(RabitTracker, "slave_envs"):
        xgboost.rabit.init([f"{name}={value}".encode() for name, value in variables.items()])
    elif hasattr(RabitTracker, "worker_args"):
        _ring().init(**{name.lower(): value for name, value in variables.items()})
    else:
        _ring().init(**variables)


def _tracker(size: int, address: str, port: int | None):
    """It has started, and what those who meet there need to know."""
    if hasattr(RabitTracker, "worker_args"):
        ring = RabitTracker(n_workers=size, host_ip=address, port=port or 0, sortby="task")
        ring.start()
        return ring, dict(ring.worker_args())
    ring = RabitTracker(address, size, **({"port": port} if port else {}))
    ring.start(size)
    variables = ring.worker_envs() if hasattr(ring, "worker_envs") else ring.slave_envs()
    return ring, {"DMLC_NUM_WORKER": size, **variables}


def _bring_together(hosts: Sequence[str], included: bool, address: tuple[str, int], port: int | None):
    """The first host's part: hears who has data, starts the tracker, tells all where it is."""
    known, connections = {hosts[0]: included}, []
    with socket.create_server(address) as listener:
        listener.settimeout(_PATIENCE_S)
        while len(known) < len(hosts):
            connection, _ = listener.accept()
            said = json.loads(connection.makefile("r").readline())
            known[said["host"]] = said["included"]
            connections.append(connection)
    members = [host for host in hosts if known[host]]
    ring, worker = _tracker(len(members), address[0], port) if members else (None, {})
    told = {"members": members, "worker": worker}
    for connection in connections:
        with connection:
            connection.sendall(json.dumps(told).encode() + b"\n")
    return told, ring


def _report(host: str, included: bool, address: tuple[str, int], attempts: int, pause_s: float) -> dict:
    """Another host's part."""
    for attempt in range(attempts):
        try:
            connection = socket.create_connection(address, timeout=_PATIENCE_S)
            break
        except OSError:
            if attempt + 1 == attempts:
                raise
            time.sleep(pause_s)
    with connection:
        connection.sendall(json.dumps({"host": host, "included": included}).encode() + b"\n")
        line = connection.makefile("r").readline()
    if not line:
        raise ConnectionError("the first host has ended before all hosts came together")
    return json.loads(line)


def _address(host: str) -> str:
    """Where instances share the machine's network they have addresses and no names."""
    known = dict(pair.split("=", 1) for pair in os.environ.get("SHOAL_HOST_ADDRESSES", "").split(",") if "=" in pair)
    return known.get(host) or socket.gethostbyname(host)
