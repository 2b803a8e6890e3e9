"""Which worker is where: starts workers on the hosts that are there, and forms the next world
when workers fail, or hosts come and go.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from horovod.runner.elastic import constants
from horovod.runner.elastic.discovery import DiscoveredHosts, HostDiscovery, HostManager
from horovod.runner.elastic.slots import INVALID_SLOT_INFO, Slot, assign
from horovod.runner.elastic.worker import HostUpdateResult
from horovod.runner.hosts import HostInfo

log = logging.getLogger(__name__)

#: Seconds between two looks at the hosts.
DISCOVER_HOSTS_FREQUENCY_SECS = 1.0
#: Seconds that the end of the job waits for a look that is under way.
DISCOVERY_ENDS_SECS = 5.0
#: Seconds to wait for the least number of slots.
ELASTIC_TIMEOUT_SECS = 600
#: Seconds that workers who wait for the next world give the others, before these are taken for
#: hung.
STRAGGLER_SECS = 60
#: Seconds in which workers of a new world have to come. A new one has to load its framework first.
FORMATION_SECS = 120.0
#: Seconds beside `formation_timeout()` that workers get to be ready after one has failed: if that one failed
#: before it joined, the others wait for it until then.
FAILED_MARGIN_SECS = 30.0
#: As STRAGGLER_SECS, where another worker has reported each missing one as hung: silent for the
#: heartbeat's time.
HUNG_SECS = 1

READY, SUCCESS, FAILURE = "READY", "SUCCESS", "FAILURE"

Key = tuple[str, int]


def formation_timeout() -> float:
    """Seconds that a world's workers wait for each other."""
    return max(FORMATION_SECS, float(os.environ.get("HOROVOD_GLOO_TIMEOUT_SECONDS", 0)))


class Results:
    """What came of the workers of the last world: name to exit code and time."""

    def __init__(self, error_message: str | None, worker_results: dict[str, tuple[int, float]]):
        self.error_message = error_message
        self.worker_results = worker_results


class ElasticDriver:
    """One job.

    A world ends when each of its workers has failed, has succeeded, or is ready for the next one.
    Then: if one has succeeded, or all have failed, the job is over. Hosts of workers that failed
    are left out; if no host is left, or the world has changed too often, the job is over. Else the
    next world is made of the hosts that there are, the oldest first, and workers are started where
    there are none.

    create_worker_fn(slot_info, events), given to `start`, runs a worker to its end, ends it when
    one of the events is set, and returns exit code and time.
    """

    def __init__(
        self,
        rendezvous: Any,
        discovery: HostDiscovery,
        min_num_proc: int,
        max_num_proc: int | None,
        timeout: float | None = None,
        reset_limit: int | None = None,
        cooldown_range: tuple[int, int] | None = None,
        verbose: int = 0,
    ):
        self._rendezvous = rendezvous
        self._host_manager = HostManager(discovery, cooldown_range)
        self._min_num_proc, self._max_num_proc = min_num_proc, max_num_proc
        self._timeout = timeout or float(os.environ.get("HOROVOD_ELASTIC_TIMEOUT", ELASTIC_TIMEOUT_SECS))
        self._reset_limit, self._resets = reset_limit, 0
        self._verbose = verbose

        self._changed = threading.Condition()
        self._shutdown = threading.Event()
        self._error_message: str | None = None
        self._world = 0
        self._slots: dict[Key, Slot] = {}
        self._states: dict[Key, str] = {}
        #: Whose host is left out: they are ended, even if the host comes back at once. And who was
        #: started last in each place.
        self._lost: set[Key] = set()
        self._started: dict[Key, Slot] = {}
        self._first_ready: float | None = None
        self._first_failed: float | None = None
        #: Workers that hung in this world, as others reported, and when the last one was reported.
        self._hung: set[Key] = set()
        self._hung_at = 0.0
        self._ending = False
        self._ports: dict[Key, int] = {}
        #: Who would go on in the next world without a synchronisation, and whether this world's
        #: workers do.
        self._keepers: set[Key] = set()
        self._skips_sync = False
        self._clients: dict[Key, Any] = {}
        #: Changes of hosts that rank 0 has not heard of, because it does not listen yet.
        self._untold = HostUpdateResult.no_update
        self._results: dict[str, tuple[int, float]] = {}
        self._workers: list[threading.Thread] = []
        self._create_worker_fn: Callable[[Slot, list[threading.Event]], tuple[int, float]] | None = None
        #: Where rank 0 of a world serves, from the port that it has named: variables for the
        #: workers.
        self.meeting_of: Callable[[Slot, int | None], dict[str, str]] = lambda first, port: {}
        self._meeting: dict[str, str] = {}

        self._thread = threading.Thread(target=self._discover_hosts, name="horovod-discovery", daemon=True)
        self._thread.start()

    # What the launcher calls.

    def start(
        self, num_proc: int, create_worker_fn: Callable[[Slot, list[threading.Event]], tuple[int, float]]
    ) -> None:
        """Starts workers as soon as there are so many slots."""
        self._create_worker_fn = create_worker_fn
        self._next_world(num_proc)

    def stop(self, error_message: str | None = None) -> None:
        """Ends all workers."""
        with self._changed:
            if self._error_message is None:
                self._error_message = error_message
            self._shutdown.set()
            self._changed.notify_all()
        self._rendezvous.stop()
        self._host_manager.close()
        if self._thread is not threading.current_thread():
            # A discovery that hangs and cannot be ended is left to the end of the process.
            self._thread.join(DISCOVERY_ENDS_SECS)

    def finished(self) -> bool:
        """Whether the job is over."""
        return self._shutdown.is_set()

    def get_results(self) -> Results:
        """Waits for all workers."""
        # More may be started meanwhile.
        joined = 0
        while joined < len(self._workers):
            self._workers[joined].join()
            joined += 1
        return Results(self._error_message, self._results)

    def wait_for_available_slots(self, min_num_proc: int, min_hosts: int = 1) -> DiscoveredHosts:
        """The hosts, as soon as they have so many slots. `TimeoutError` after the time that the
        job allows, `RuntimeError` if it is over meanwhile.
        """
        end = time.monotonic() + self._timeout
        with self._changed:
            while True:
                hosts = self._host_manager.current_hosts
                if hosts.count_available_slots() >= min_num_proc and len(hosts.available_hosts) >= min_hosts:
                    return hosts
                if self._shutdown.is_set():
                    raise RuntimeError("Job has been shutdown, see above error messages for details.")
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError(
                        "Timed out waiting for minimum number of slots to become available. Please check that you have enough resources to run at least "
                        f"{min_num_proc} Horovod processes; there are {hosts.count_available_slots()} slots on {len(hosts.available_hosts)} hosts."
                    )
                self._changed.wait(left)

    # What workers' connections call.

    def register_worker_client(self, host: str, slot: int, client: Any) -> None:
        """That worker listens."""
        with self._changed:
            self._clients[(host, slot)] = client
            first = self._slots.get((host, slot))
            if first is None or first.rank != 0 or not self._untold:
                return
            result, self._untold = self._untold, HostUpdateResult.no_update
        self._tell(client, result)

    def get_worker_client(self, slot_info: Slot) -> Any:
        """What tells a worker of hosts; None if it does not listen."""
        return self._clients.get((slot_info.hostname, slot_info.local_rank))

    def record_ready(
        self,
        host: str,
        slot: int,
        port: int | None = None,
        keeps_state: bool = False,
        hung: Collection[int] = (),
        world: int | None = None,
    ) -> None:
        """That worker is ready for the next world; returns when there is one, or the job is
        over. port: a free one on its host. keeps_state: it would go on without getting rank 0's
        state. hung: ranks of world number `world` that hung, as far as this worker knows.
        """
        with self._changed:
            if port:
                self._ports[(host, slot)] = port
            if keeps_state:
                self._keepers.add((host, slot))
            found = {key for key, other in self._slots.items() if other.rank in hung} if world == self._world else set()
            if found - self._hung:
                self._hung |= found
                self._hung_at = time.monotonic()
                self._changed.notify_all()
        self._record((host, slot), READY)

    def get_slot_info(self, host: str, slot: int) -> Slot:
        """A worker's place in the world; `INVALID_SLOT_INFO` if it has none."""
        return self._slots[(host, slot)] if self.has_rank_assignment(host, slot) else INVALID_SLOT_INFO

    def has_rank_assignment(self, host: str, slot: int) -> bool:
        """Whether there is a place for that worker."""
        return not self._host_manager.is_blacklisted(host) and (host, slot) in self._slots

    def skips_sync(self) -> bool:
        """Whether the world's workers go on without synchronising their states: all of them have
        the same one. They have to do the same, or wait for one another.
        """
        return self._skips_sync

    def meeting(self) -> dict[str, str]:
        """Where the world's workers meet, as variables."""
        return dict(self._meeting)

    # What is known of the world.

    def world_size(self) -> int:
        """How many workers there are."""
        return len(self._slots)

    def local_size(self, host: str) -> int:
        """How many of them are on that host."""
        return len(self.host_assignments[host])

    @property
    def host_assignments(self) -> dict[str, list[Slot]]:
        """The places of each host."""
        return _by_host(list(self._slots.values()))

    def get_coordinator_info(self) -> Slot | None:
        """Rank 0's place."""
        return next((slot for slot in self._slots.values() if slot.rank == 0), None)

    # Worlds.

    def _record(self, key: Key, state: str) -> int:
        """A worker is done with this world. Returns which world that was, as soon as the next
        one is there, or the job is over.
        """
        with self._changed:
            world = self._world
            if self._shutdown.is_set() or self._host_manager.is_blacklisted(key[0]):
                return world
            if key in self._slots and (key not in self._states or state == FAILURE):
                self._states[key] = state
                if state == READY and self._first_ready is None:
                    self._first_ready = time.monotonic()
                if state == FAILURE and self._first_failed is None:
                    self._first_failed = time.monotonic()
            decides = len(self._states) == len(self._slots) and not self._ending
            self._ending = self._ending or decides
        if decides:
            self._end_world()
            return world
        with self._changed:
            while self._world == world and not self._shutdown.is_set():
                late = self._late()
                self._changed.wait(None if late is None else max(late, 0.01))
                late = self._late()
                if late is not None and late <= 0 and self._world == world and not self._ending:
                    self._give_up_stragglers()
                    self._ending = True
                    break
            else:
                return world
        self._end_world()
        return world

    def _late(self) -> float | None:
        """Seconds until those who have not come are taken for hung."""
        ready, failed = self._first_ready, self._first_failed
        if self._ending or (ready is None and failed is None):
            return None
        if ready is None:
            end = (failed or 0.0) + formation_timeout() + FAILED_MARGIN_SECS
        elif self._slots.keys() - self._states.keys() <= self._hung:
            end = max(ready, self._hung_at) + HUNG_SECS
        else:
            end = ready + STRAGGLER_SECS
        return end - time.monotonic()

    def _give_up_stragglers(self) -> None:
        waited = time.monotonic() - (self._first_ready or self._first_failed or 0.0)
        for host, slot in self._slots.keys() - self._states.keys():
            log.error(
                "worker %s[%d] neither ended nor joined the next world within %.1f s: it is taken for hung",
                host,
                slot,
                waited,
            )
            self._states[(host, slot)] = FAILURE

    def _end_world(self) -> None:
        try:
            reason = self._verdict()
            if reason is not None:
                self.stop(*reason)
            else:
                self._resets += 1
                self._next_world(self._min_num_proc)
        except Exception as error:
            log.exception("no next world can be made: the job ends")
            self.stop(str(error))

    def _verdict(self) -> tuple[str | None] | None:
        """Why the job is over, as arguments of `stop`; None if it goes on."""
        states = dict(self._states)
        if SUCCESS in states.values():
            return (None,)
        failed = {host for (host, _), state in states.items() if state == FAILURE}
        if all(state == FAILURE for state in states.values()):
            return (None,)
        for host in failed:
            seconds = self._host_manager.blacklist(host)
            log.warning(
                "host %s is left out %s: a worker there has failed",
                host,
                "from now on" if seconds is None else f"for {seconds:.0f} s",
            )
            self._lost |= {key for key in states if key[0] == host}
        if failed >= {host for host, _ in states}:
            log.warning(
                "workers have failed on every host of this world, and none is left that has the state: the job ends"
            )
            return (None,)
        if self._reset_limit is not None and self._resets >= self._reset_limit:
            return (constants.RESET_LIMIT_EXCEEDED_MESSAGE.format(self._reset_limit),)
        return None

    def _next_world(self, least: int) -> None:
        hosts = self.wait_for_available_slots(least)
        with self._changed:
            slots = self._places(hosts)
            stay = self._slots.keys() - self._lost
            if self._slots and not {host for host, _ in stay} & {slot.hostname for slot in slots}:
                raise RuntimeError("No hosts from previous set remaining, unable to broadcast state.")
            new = [slot for slot in slots if (slot.hostname, slot.local_rank) not in stay]
            for slot in new:
                self._started[(slot.hostname, slot.local_rank)] = slot
            self._slots = {(slot.hostname, slot.local_rank): slot for slot in slots}
            self._states, self._lost, self._ending = {}, set(), False
            self._first_ready = self._first_failed = None
            self._hung = set()
            self._untold = HostUpdateResult.no_update
            first = slots[0]
            meeting = self.meeting_of(first, self._ports.get((first.hostname, first.local_rank)))
            # Workers that stay have started before, and new ones have not: they meet by the world's
            # number.
            self._meeting = {**meeting, "SHOAL_NAMED_WORLD": str(self._world + 1)}
            self._ports = {}
            # A newcomer has no state, and who comes from a failed operation went back to an older
            # one.
            self._skips_sync = self._slots.keys() <= self._keepers - {(slot.hostname, slot.local_rank) for slot in new}
            self._keepers = set()
            self._rendezvous.init(slots)
            self._world += 1
            self._changed.notify_all()
        for slot in new:
            self._start_worker(slot)

    def _places(self, hosts: DiscoveredHosts) -> list[Slot]:
        return assign(
            [HostInfo(host, hosts.get_slots(host)) for host in hosts.host_assignment_order],
            self._min_num_proc,
            self._max_num_proc,
        )

    def _start_worker(self, slot: Slot) -> None:
        create, events = self._create_worker_fn, [self._shutdown, self._host_manager.get_host_event(slot.hostname)]
        if create is None:
            raise RuntimeError("a worker cannot be started before start(num_proc, create_worker_fn)")

        def run() -> None:
            try:
                code, when = create(slot, events)
            except OSError as error:
                log.error("worker %s[%d]: %s", slot.hostname, slot.local_rank, error)
                code, when = 1, time.time()
            except Exception:
                log.exception("worker %s[%d] could not be run", slot.hostname, slot.local_rank)
                code, when = 1, time.time()
            self._ended(slot, code, when)

        thread = threading.Thread(target=run, name=f"horovod-{slot.hostname}-{slot.local_rank}", daemon=True)
        thread.start()
        self._workers.append(thread)

    def _ended(self, slot: Slot, code: int, when: float) -> None:
        if self._started.get((slot.hostname, slot.local_rank)) is not slot or not self.has_rank_assignment(
            slot.hostname, slot.local_rank
        ):
            return
        world = self._record((slot.hostname, slot.local_rank), SUCCESS if code == 0 else FAILURE)
        if self.finished() and self._world == world:
            self._results.setdefault(f"{slot.hostname}[{slot.local_rank}]", (code, when))

    # Hosts.

    def _discover_hosts(self) -> None:
        first, trouble = True, ""
        while not self._shutdown.is_set():
            try:
                # Without the lock: a script may take long, and workers register and fail meanwhile.
                found = self._host_manager.discover()
                client, result = self._take_over(found)
                if client is not None:
                    self._tell(client, result)
                if trouble:
                    log.warning("hosts are discovered again")
                trouble = ""
            except Exception as error:
                if self._shutdown.is_set():
                    return
                if first:
                    # A mistake in the configuration: the job ends at once.
                    log.error("hosts cannot be discovered: %s", error)
                    with self._changed:
                        self._shutdown.set()
                        self._changed.notify_all()
                    return
                if str(error) != trouble:
                    log.warning(
                        "hosts could not be discovered; the job goes on with those known, and asks again every %g s: %s",
                        DISCOVER_HOSTS_FREQUENCY_SECS,
                        error,
                    )
                trouble = str(error)
            first = False
            self._shutdown.wait(DISCOVER_HOSTS_FREQUENCY_SECS)

    def _take_over(self, found: dict[str, int]) -> tuple[Any, HostUpdateResult]:
        """These hosts are there. Returns rank 0's client and what to tell it; None if there is
        nothing to tell, or nobody yet.
        """
        with self._changed:
            result = self._host_manager.update_available_hosts(found)
            if result == HostUpdateResult.no_update:
                return None, result
            self._changed.notify_all()
            hosts = self._host_manager.current_hosts
            places = self._places(hosts) if hosts.count_available_slots() >= self._min_num_proc else []
            if _by_host(places) == self.host_assignments:
                return None, result
            if {(it.hostname, it.local_rank) for it in places} - self._slots.keys():
                # A worker comes though no host did: to a place that was beyond the greatest number
                # of workers.
                result |= HostUpdateResult.added
            coordinator = self.get_coordinator_info()
            client = self.get_worker_client(coordinator) if coordinator else None
            if client is None:
                # It has not come yet.
                self._untold |= result
            return client, result

    def _tell(self, client: Any, result: HostUpdateResult) -> None:
        try:
            client.notify_hosts_updated(time.time(), result)
        except OSError as error:
            # It is about to end; all will come here for the next world.
            log.info("rank 0 could not be told of hosts: %s", error)


def _by_host(slots: list[Slot]) -> dict[str, list[Slot]]:
    found: dict[str, list[Slot]] = {}
    for slot in slots:
        found.setdefault(slot.hostname, []).append(slot)
    return found
