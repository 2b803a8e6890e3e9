"""Which hosts there are at the moment."""

import os
import random
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping

from shoal.elastic import parse_hosts

from horovod.runner.elastic.worker import HostUpdateResult

#: Bounds of the cooldown of a host that failed, in seconds.
DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS = 1
DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS = 60 * 60

#: How long a discovery script may run, in seconds.
SCRIPT_TIMEOUT_S = 60

#: What a shell's own exit codes mean for a script.
SHELL_CODES = {126: ": it may not be executed (chmod +x), or is no program", 127: ": there is no such program"}


class HostDiscovery:
    """Finds hosts."""

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Host to the number of workers that it may run."""
        raise NotImplementedError(
            f"{type(self).__name__} has to say which hosts there are: define find_available_hosts_and_slots()"
        )

    def close(self) -> None:
        """The job is over: ends what is running."""


class HostDiscoveryScript(HostDiscovery):
    """A program that prints a line `host:slots`, or `host`, for each host. slots: of hosts
    without a number.
    """

    def __init__(self, discovery_script: str, slots: int | None):
        self._discovery_script = discovery_script
        self._default_slots = slots
        self._closed = False

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """What it prints. RuntimeError if it fails, or a host has no number of slots."""
        hosts = {}
        for line in self._execute_discovery_script().splitlines():
            if ":" in line:
                try:
                    hosts.update(parse_hosts(line))
                except ValueError:
                    raise ValueError(
                        f"discovery script {self._discovery_script} printed {line!r}: a line is to be host:slots, such as worker-0:2"
                    ) from None
            elif line.strip():
                if self._default_slots is None:
                    raise RuntimeError(
                        f"{self._discovery_script} names host {line.strip()} without slots: print host:slots, or give --slots-per-host"
                    )
                hosts[line.strip()] = self._default_slots
        return hosts

    def close(self) -> None:
        """Ends the program soon, if it runs."""
        self._closed = True

    def _execute_discovery_script(self) -> str:
        script, end = self._discovery_script, time.monotonic() + SCRIPT_TIMEOUT_S
        # A session of its own: what the shell has started holds the pipe, and is ended with it.
        running = subprocess.Popen(
            script, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        while True:
            try:
                printed, _ = running.communicate(timeout=0.1)
                break
            except subprocess.TimeoutExpired:
                if self._closed or time.monotonic() >= end:
                    # Only this thread waits for it, so the number is still its own.
                    os.killpg(running.pid, signal.SIGKILL)
                    running.communicate()
                    why = "the job is over" if self._closed else f"it did not end within {SCRIPT_TIMEOUT_S:g} s"
                    raise RuntimeError(f"Discovery script was killed: {script}: {why}") from None
        if running.returncode != 0:
            why = SHELL_CODES.get(running.returncode, "")
            raise RuntimeError(f"Failed to execute discovery script: {script}. Exit code: {running.returncode}{why}")
        return printed


class FixedHosts(HostDiscovery):
    """Hosts that are given."""

    def __init__(self, host_slots: dict[str, int]):
        self._host_slots = host_slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """They."""
        return self._host_slots

    def set(self, host_slots: dict[str, int]) -> None:
        """Others from now on."""
        self._host_slots = host_slots


class HostState:
    """Whether a host is left out, until when, and an event for those who run workers there."""

    def __init__(self, cooldown_range: tuple[float, float] | None = None):
        self._event = threading.Event()
        self._blacklisted = False
        self._failures = 0
        self._range = cooldown_range
        self._end = 0.0
        if cooldown_range:
            least, most = cooldown_range
            if not DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS <= least <= most <= DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS:
                bounds = f"{DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS} to {DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS} s"
                raise ValueError(
                    f"a cooldown from {least} to {most} s cannot be: give two numbers within {bounds}, the lower one first"
                )

    def get_event(self) -> threading.Event:
        """Set when the host's workers have to end; a new one after that."""
        if self._event.is_set():
            self._event = threading.Event()
        return self._event

    def set_event(self) -> None:
        """The host's workers have to end."""
        self._event.set()

    def blacklist(self) -> float | None:
        """Leaves the host out: for good, or for a time that doubles with each failure. Seconds;
        None: for good.
        """
        self._blacklisted = True
        now = time.time()
        if self._end > now:
            return self._end - now
        if self._range:
            least, most = self._range
            self._failures += 1
            delay = least * 2**self._failures + random.uniform(0, least)
            self._end = now + max(least, min(most, delay))
        self.set_event()
        return self._end - now if self._range else None

    def whitelist(self) -> None:
        """Takes it in again."""
        self._end = 0.0
        self._blacklisted = False

    def is_blacklisted(self) -> bool:
        """Whether it is left out."""
        return self._blacklisted

    def is_resurrected(self) -> bool:
        """Whether the time for which it was left out is over."""
        return 0 < self._end <= time.time()


class DiscoveredHosts:
    """Hosts as of one moment, the oldest first; it does not change."""

    def __init__(self, host_slots: Mapping[str, int], host_assignment_order: Iterable[str]):
        self._slots = dict(host_slots)
        self._order = list(host_assignment_order)

    @property
    def host_slots(self) -> dict[str, int]:
        """All that were found, also those that are left out."""
        return dict(self._slots)

    @property
    def available_hosts(self) -> set[str]:
        """Those that may have workers."""
        return set(self._order)

    @property
    def host_assignment_order(self) -> list[str]:
        """The same, the oldest first."""
        return list(self._order)

    def get_slots(self, host: str) -> int:
        """How many workers it may run."""
        return self._slots.get(host, 0)

    def count_available_slots(self) -> int:
        """How many all may run."""
        return sum(self.get_slots(host) for host in self._order)

    def without(self, left_out: Mapping[str, HostState]) -> "DiscoveredHosts":
        """Without those that are left out."""
        return DiscoveredHosts(self._slots, [host for host in self._order if not left_out[host].is_blacklisted()])

    def __str__(self) -> str:
        return f"slots: {self._slots} order: {self._order}"


class HostManager:
    """Hosts through time: which are new, which are gone, which have failed."""

    def __init__(self, discovery: HostDiscovery, cooldown_range: tuple[float, float] | None = None):
        HostState(cooldown_range)
        self._hosts = DiscoveredHosts({}, [])
        self._states: dict[str, HostState] = defaultdict(lambda: HostState(cooldown_range))
        self._discovery = discovery

    def discover(self) -> dict[str, int]:
        """Asks the discovery, which may take as long as it likes: nothing changes here yet."""
        return dict(self._discovery.find_available_hosts_and_slots())

    def close(self) -> None:
        """Ends a discovery that is under way."""
        close = getattr(self._discovery, "close", None)
        if close is not None:
            close()

    def update_available_hosts(self, found: dict[str, int] | None = None) -> HostUpdateResult:
        """Takes over what was found, or asks the discovery; says what has changed since."""
        found = self.discover() if found is None else found
        before = self._hosts.host_slots
        again = {host for host in found if self._states[host].is_resurrected()}
        if found == before and not again:
            return HostUpdateResult.no_update
        result = HostUpdateResult.no_update
        for host in before.keys() | found.keys():
            had, has = before.get(host, 0), found.get(host, 0)
            if has < had or (host in before and host not in found):
                result |= HostUpdateResult.removed
            elif has > had or host not in before or host in again:
                result |= HostUpdateResult.added
        for host in again:
            self._states[host].whitelist()
        available = [host for host in found if not self._states[host].is_blacklisted()]
        self._hosts = DiscoveredHosts(found, self.order_available_hosts(available, self._hosts.host_assignment_order))
        return result

    @property
    def current_hosts(self) -> DiscoveredHosts:
        """Those that may have workers."""
        self._hosts = self._hosts.without(self._states)
        return self._hosts

    def blacklist(self, host: str) -> float | None:
        """A worker there has failed: the host is left out for so many seconds; None: for good."""
        return self._states[host].blacklist()

    def is_blacklisted(self, host: str) -> bool:
        """Whether it is left out."""
        return self._states[host].is_blacklisted()

    def get_host_event(self, host: str) -> threading.Event:
        """Set when its workers have to end."""
        return self._states[host].get_event()

    @staticmethod
    def order_available_hosts(available_hosts: Iterable[str], prev_host_assignment_order: Iterable[str]) -> list[str]:
        """Those that stay in their order, then the new ones: the oldest host has rank 0, which
        has the state.
        """
        available = list(available_hosts)
        stay = [host for host in prev_host_assignment_order if host in set(available)]
        return stay + [host for host in available if host not in stay]
