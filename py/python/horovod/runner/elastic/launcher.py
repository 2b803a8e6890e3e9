"""Runs an elastic job: the launcher's port, the driver, and a process for each worker, here or
over ssh.
"""

import contextlib
import os
import random
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from shoal.address import own_address

from horovod.runner.elastic.discovery import FixedHosts, HostDiscoveryScript
from horovod.runner.elastic.driver import ElasticDriver, formation_timeout
from horovod.runner.elastic.rendezvous import RendezvousServer, create_rendezvous_handler
from horovod.runner.elastic.settings import ElasticSettings
from horovod.runner.elastic.slots import Slot
from horovod.runner.elastic.worker import DRIVER, SECRET
from horovod.runner.hosts import is_local, parse_host_file, parse_hosts
from horovod.runner.launch import place_variables
from horovod.runner.workers import _script as remote_script
from horovod.runner.workers import plain_script, start_here

#: Seconds that a worker gets to end after SIGTERM.
GRACE_S = 5.0

#: What starts a command on another host in ssh's place: it is given the host and `-`, reads a
#: script for a shell, and the command ends with it.
REMOTE_SHELL = "SHOAL_REMOTE_SHELL"

#: What is said when a job fails; users match it.
FAILED = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be terminated."
)


def settings_of(args: Any) -> ElasticSettings:
    """What `horovodrun`'s arguments ask for. `ValueError` says which of them do not go together."""
    script, hosts = getattr(args, "host_discovery_script", None), getattr(args, "hosts", None)
    if script:
        discovery = HostDiscoveryScript(script, getattr(args, "slots", None))
    elif hosts:
        discovery = FixedHosts({it.hostname: it.slots for it in parse_hosts(hosts)})
    elif getattr(args, "hostfile", None):
        discovery = FixedHosts({it.hostname: it.slots for it in parse_host_file(args.hostfile)})
    else:
        raise ValueError(
            "an elastic job needs hosts: give --host-discovery-script, or -H host:slots,.. for hosts that stay"
        )
    least = getattr(args, "min_num_proc", None)
    least = args.num_proc if least is None else least
    if least is None:
        raise ValueError("give -np or --min-np: how many workers the job needs")
    most = getattr(args, "max_num_proc", None)
    for option, value in (("--min-np", least), ("--slots-per-host", getattr(args, "slots", None))):
        if value is not None and value < 1:
            raise ValueError(f"{option} {value}: at least 1 is needed")
    if args.num_proc is not None and args.num_proc < least:
        raise ValueError(
            f"-np {args.num_proc} is less than --min-np {least}: the job starts with as many workers as -np says"
        )
    if most is not None and most < least:
        raise ValueError(f"--max-np {most} is less than --min-np {least}")
    cooldown = getattr(args, "cooldown_range", None)
    names = (
        "elastic_timeout",
        "reset_limit",
        "verbose",
        "ssh_port",
        "ssh_identity_file",
        "output_filename",
        "prefix_output_with_timestamp",
    )
    known = {name: getattr(args, name, None) for name in names}
    return ElasticSettings(
        discovery=discovery,
        min_num_proc=least,
        max_num_proc=most,
        cooldown_range=tuple(cooldown) if cooldown else None,
        num_proc=args.num_proc or least,
        **known,
    )


def run_elastic(settings: ElasticSettings, env: Mapping[str, str], command: Sequence[str]) -> None:
    """Runs the command as an elastic job until it is over. `RuntimeError` if it failed."""
    secret = secrets.token_hex(16)
    rendezvous = RendezvousServer()
    least = settings.min_num_proc or 1
    driver = ElasticDriver(
        rendezvous,
        settings.discovery,
        least,
        settings.max_num_proc,
        timeout=settings.elastic_timeout,
        reset_limit=settings.reset_limit,
        cooldown_range=settings.cooldown_range,
        verbose=settings.verbose or 0,
    )
    before = _end_by_signals()
    try:
        hosts = driver.wait_for_available_slots(least)
        here = all(is_local(host) for host in hosts.available_hosts) and not isinstance(
            settings.discovery, HostDiscoveryScript
        )
        port = rendezvous.start(create_rendezvous_handler(driver), "127.0.0.1" if here else "", secret)
        address = "127.0.0.1" if here else own_address()
        driver.meeting_of = lambda first, free: _meeting(driver, first, free)
        common = {
            **env,
            DRIVER: f"{address}:{port}",
            SECRET: secret,
            "SHOAL_COMM_SECRET": env.get("SHOAL_COMM_SECRET") or secrets.token_hex(16),
            "HOROVOD_ELASTIC": "1",
            "PYTHONUNBUFFERED": "1",
        }
        driver.start(settings.num_proc, _runner(settings, driver, common, list(command)))
        results = driver.get_results()
    finally:
        driver.stop()
        # Workers are told to end, and waited for: none is left behind.
        driver.get_results()
        for number, handler in before.items():
            signal.signal(number, handler)
    if results.error_message:
        raise RuntimeError(results.error_message)
    bad = {name: code for name, (code, _) in sorted(results.worker_results.items()) if code != 0}
    if bad or not results.worker_results:
        name, code = next(iter(bad.items()), ("none is left", 1))
        raise RuntimeError(f"{FAILED} The first process to do so was:\nProcess name: {name}\nExit code: {code}\n")


def _end_by_signals() -> dict[int, Any]:
    """Requests to end unwind the launcher, so that its workers end, too. The handlers before, to
    be put back.
    """

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}


def _meeting(driver: ElasticDriver, first: Slot, free: int | None) -> dict[str, str]:
    """Where rank 0 of the next world serves: a port that its worker has found free, or for a new
    one a guess (elsewhere) or a free one (here).
    """
    here = is_local(first.hostname)
    if free is None and here:
        with socket.socket() as it:
            it.bind(("", 0))
            free = it.getsockname()[1]
    if all(is_local(host) for host in driver.host_assignments):
        address = "127.0.0.1"
    else:
        address = own_address() if here else first.hostname
    return {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(free or random.randint(20000, 32000)),
        "SHOAL_COMM_PATIENCE": str(formation_timeout()),
    }


def _runner(
    settings: ElasticSettings, driver: ElasticDriver, common: Mapping[str, str], command: list[str]
) -> Callable[[Slot, list[threading.Event]], tuple[int, float]]:
    def run(slot: Slot, events: list[threading.Event]) -> tuple[int, float]:
        variables = {**common, **place_variables(slot), **driver.meeting()}
        process = _start(settings, slot.hostname, command, variables)
        pumps = [
            threading.Thread(target=_pump, args=(settings, slot.rank, name, source, into), daemon=True)
            for source, into, name in ((process.stdout, sys.stdout, "stdout"), (process.stderr, sys.stderr, "stderr"))
        ]
        for pump in pumps:
            pump.start()
        code = _until_end(process, events)
        for pump in pumps:
            pump.join(1)
        return code, time.time()

    return run


def _until_end(process: subprocess.Popen, events: list[threading.Event]) -> int:
    told: float | None = None
    while True:
        try:
            return process.wait(0.05)
        except subprocess.TimeoutExpired:
            if told is None and any(event.is_set() for event in events):
                told = time.monotonic()
                if process.stdin is not None:
                    process.stdin.close()
                _signal(process, signal.SIGTERM)
                # A stopped process reacts to no other signals.
                _signal(process, signal.SIGCONT)
            elif told is not None and time.monotonic() > told + GRACE_S:
                _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _pump(settings: ElasticSettings, rank: int, name: str, source: IO[bytes], into: Any) -> None:
    """Passes a worker's lines on, and writes them to a file of its first rank's, if asked for."""
    with contextlib.ExitStack() as files:
        kept = None
        if settings.output_filename:
            directory = Path(settings.output_filename) / f"rank.{rank}"
            directory.mkdir(parents=True, exist_ok=True)
            kept = files.enter_context((directory / name).open("ab"))
        for line in source:
            if kept is not None:
                kept.write(line)
                kept.flush()
            when = time.strftime("%a %b %d %H:%M:%S %Y") if settings.prefix_output_with_timestamp else ""
            # The reader of this output may be gone: the worker must not wait for it.
            with contextlib.suppress(OSError, ValueError):
                into.write(f"{when}[{rank}]<{name}>:{line.decode(errors='replace')}")
                into.flush()


def _start(settings: ElasticSettings, host: str, command: list[str], variables: Mapping[str, str]) -> subprocess.Popen:
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    if is_local(host):
        return start_here(command, variables, how)
    shell = os.environ.get(REMOTE_SHELL)
    if shell:
        process = subprocess.Popen([*shlex.split(shell), host, "-"], stdin=subprocess.PIPE, **how)
        process.stdin.write(plain_script(command, dict(variables)).encode())
        process.stdin.close()
        return process
    ssh = ["ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"]
    ssh += ["-p", str(settings.ssh_port)] if settings.ssh_port else []
    ssh += ["-i", settings.ssh_identity_file] if settings.ssh_identity_file else []
    process = subprocess.Popen([*ssh, host, "bash", "-s"], stdin=subprocess.PIPE, **how)
    # By standard input, which no `ps` shows. The other side ends the worker when it is closed.
    process.stdin.write(remote_script(command, dict(variables)).encode())
    process.stdin.flush()
    return process
