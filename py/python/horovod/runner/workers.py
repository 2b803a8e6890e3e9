"""Processes of ranks: started here or by ssh, their output passed on line by line, ended
together.
"""

import argparse
import contextlib
import errno
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from horovod.runner.hosts import SlotInfo, is_local

#: Seconds between the request to end and the end.
GRACE = 5.0

#: ssh's exit code for a connection that failed.
SSH_FAILED = 255


class Workers:
    """The ranks of one program."""

    def __init__(
        self,
        slots: list[SlotInfo],
        command: list[str],
        variables: list[dict[str, str]],
        options: argparse.Namespace,
        handles_signals: bool,
    ):
        remote = sorted({it.hostname for it in slots if not is_local(it.hostname)})
        if remote and shutil.which("ssh") is None:
            raise ValueError(
                f"hosts {', '.join(remote)}: there is no ssh in PATH to start ranks there; install it, or start all ranks on this machine by -H localhost:{len(slots)}"
            )
        self._options = options
        self._output = Path(options.output_filename) if options.output_filename else None
        self._write = threading.Lock()
        self._readers: list[threading.Thread] = []
        self._ended = threading.Condition()
        self._codes: dict[int, int] = {}
        self._stopped: int | None = None
        self._processes: list[subprocess.Popen] = []
        before = self._take_signals() if handles_signals else {}
        try:
            for slot, its in zip(slots, variables, strict=True):
                self._processes.append(self._start(slot, command, its))
        except BaseException:
            self._end()
            raise
        finally:
            self._before = before
        self._slots = slots

    def _start(self, slot: SlotInfo, command: list[str], variables: dict[str, str]) -> subprocess.Popen:
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
        if is_local(slot.hostname):
            process = start_here(command, variables, how)
        else:
            ssh = ["ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"]
            ssh += ["-p", str(self._options.ssh_port)] if self._options.ssh_port else []
            ssh += ["-i", self._options.ssh_identity_file] if self._options.ssh_identity_file else []
            process = subprocess.Popen([*ssh, slot.hostname, "bash", "-s"], stdin=subprocess.PIPE, **how)
            process.stdin.write(_script(command, variables).encode())
            process.stdin.flush()
        if self._options.verbose:
            print(
                f"horovodrun: rank {slot.rank} on {slot.hostname}: process {process.pid}: {shlex.join(command)}",
                file=sys.stderr,
            )
        width = len(str(slot.size - 1))
        for name, stream, to in (("stdout", process.stdout, sys.stdout), ("stderr", process.stderr, sys.stderr)):
            file = None
            if self._output is not None:
                directory = self._output / f"rank.{slot.rank:0{width}}"
                directory.mkdir(parents=True, exist_ok=True)
                file = (directory / name).open("wb")
            reader = threading.Thread(target=self._pass_on, args=(slot.rank, name, stream, to, file), daemon=True)
            reader.start()
            self._readers.append(reader)
        threading.Thread(target=self._watch, args=(slot.rank, process), daemon=True).start()
        return process

    def _pass_on(self, rank: int, name: str, stream, to, file) -> None:
        for line in stream:
            if file is not None:
                file.write(line)
                file.flush()
            when = time.strftime("%a %b %d %H:%M:%S %Y") if self._options.prefix_output_with_timestamp else ""
            text = f"{when}[{rank}]<{name}>:{line.decode(errors='replace')}"
            # The reader of this output may be gone: the rank must not wait for it.
            with self._write, contextlib.suppress(OSError, ValueError):
                to.write(text if text.endswith("\n") else text + "\n")
                to.flush()
        if file is not None:
            file.close()

    def _watch(self, rank: int, process: subprocess.Popen) -> None:
        code = process.wait()
        with self._ended:
            self._codes[rank] = code
            self._ended.notify_all()

    def _take_signals(self) -> dict:
        def stop(number, _):
            self._stopped = number

        return {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def wait(self) -> int:
        """Waits for all ranks; when one fails, or this process is told to end, ends the others.
        The first failed one's exit code (128 and the number for a signal), or 0.
        """
        failed = None
        try:
            with self._ended:
                while len(self._codes) < len(self._processes) and failed is None and self._stopped is None:
                    self._ended.wait(0.2)
                    failed = next((rank for rank, code in self._codes.items() if code != 0), None)
                if failed is None:
                    failed = next((rank for rank, code in self._codes.items() if code != 0), None)
                code = None if failed is None else self._codes[failed]
        finally:
            self._end()
            for number, handler in self._before.items():
                signal.signal(number, handler)
        for reader in self._readers:
            reader.join(GRACE)
        if self._stopped is not None:
            return 128 + self._stopped
        if code is None:
            return 0
        what = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        host = self._slots[failed].hostname
        print(f"horovodrun: rank {failed} on {host} failed with {what}; the other ranks were ended.", file=sys.stderr)
        if code == SSH_FAILED and not is_local(host):
            print(
                f"horovodrun: with that code ssh ends where it cannot reach a host: `ssh {host} true` has to work without a password.",
                file=sys.stderr,
            )
        return 128 - code if code < 0 else code

    def _end(self) -> None:
        """Ends running ranks, with their child processes."""
        for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
            alive = [it for it in self._processes if it.poll() is None]
            for it in alive:
                if it.stdin is not None:
                    # The other side of ssh ends its rank when this is closed.
                    it.stdin.close()
                try:
                    os.killpg(it.pid, number)
                except ProcessLookupError:
                    continue
            until = time.monotonic() + patience
            while any(it.poll() is None for it in alive) and time.monotonic() < until:
                time.sleep(0.02)


def start_here(command: Sequence[str], variables: Mapping[str, str], how: Mapping[str, Any]) -> subprocess.Popen:
    """Starts a rank on this machine; `how` are arguments of `Popen`. `OSError` says what to give
    in place of a command that cannot be started.
    """
    try:
        return subprocess.Popen(command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, **how)
    except OSError as error:
        program = command[0]
        if program.endswith(".py"):
            advice = f"a script of Python's is started by python: {shlex.join(['python', *command])}"
        elif error.errno == errno.EACCES:
            advice = f"allow its execution by chmod +x {shlex.quote(program)}"
        elif error.errno == errno.ENOEXEC:
            advice = "let its first line say what runs it, such as #!/bin/sh"
        elif "/" not in program and Path(program).exists():
            advice = f"it is no program in PATH; one of this directory is ./{program}"
        else:
            advice = "give a program in PATH, or the path of one"
        raise OSError(f"cannot start {program!r} ({os.strerror(error.errno)}): {advice}") from error


def _exports(variables: dict[str, str]) -> str:
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") or name.startswith(("HOROVOD_", "SHOAL_", "NCCL_", "OMP_"))
    }
    return "\n".join(f"  export {name}={shlex.quote(value)}" for name, value in {**passed, **variables}.items())


def plain_script(command: list[str], variables: dict[str, str]) -> str:
    """The script of a shell on another host whose starter ends the rank."""
    return f"{_exports(variables)}\ncd {shlex.quote(os.getcwd())} || exit 1\nexec {shlex.join(command)}\n"


def _script(command: list[str], variables: dict[str, str]) -> str:
    """The script of bash on another host. It is read from standard input, so that no process
    list shows it, and ends the rank when that is closed.
    """
    return f"""exec 3<&0
rank() {{
{_exports(variables)}
  cd {shlex.quote(os.getcwd())} || exit 1
  {shlex.join(command)} </dev/null &
  started=$!
  (cat <&3; kill -TERM $started) >/dev/null 2>&1 &
  wait $started
  exit $?
}}
rank
"""
