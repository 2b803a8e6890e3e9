"""Horovod's elastic training: the launcher's driver by itself, and whole jobs with hosts that
come and go and workers that are killed.
"""

import json
import subprocess
import threading
import time

import pytest
import torch_ranks
from torch_ranks import HERE

from horovod.common import elastic
from horovod.common.elastic import ObjectState, run_fn
from horovod.common.engine import failed
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.runner.elastic import discovery, driver, worker
from horovod.runner.elastic.rendezvous import RendezvousServer, create_rendezvous_handler
from horovod.runner.elastic.slots import assign
from horovod.runner.hosts import HostInfo
from shoal.comm import PeerHung

TIMEOUT_S = 120
needs_torch = torch_ranks.needs_torch()


def job(tmp_path, *options: str, blow: str = "none", fails: bool = False, **variables: str) -> list[dict]:
    """What rank 0 wrote in a job."""
    command = [
        torch_ranks.PYTHON,
        "-m",
        "horovod.runner.launch",
        *options,
        torch_ranks.PYTHON,
        str(HERE / "horovod_elastic_worker.py"),
        str(tmp_path),
        blow,
    ]
    done = subprocess.run(
        command, env={**torch_ranks.environment(), **variables}, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]


@needs_torch
def test_hosts_come_and_go_and_workers_keep_their_processes(tmp_path):
    (tmp_path / "hosts").write_text("localhost:1\n")
    (tmp_path / "hosts.1").write_text("localhost:1\n127.0.0.1:1\n")
    (tmp_path / "hosts.2").write_text("127.0.0.1:1\n")
    epochs = job(
        tmp_path, "-np", "1", "--min-np", "1", "--max-np", "2", "--host-discovery-script", f"cat {tmp_path}/hosts"
    )
    assert [(it["size"], it["host"], it["start_rank"], it["worlds"]) for it in epochs] == [
        (1, "localhost", 0, 1),
        (2, "localhost", 0, 2),
        (1, "127.0.0.1", 1, 3),
    ]
    assert epochs[0]["pid"] == epochs[1]["pid"] != epochs[2]["pid"]
    assert all(it["all"] and it["same"] and it["read"] == 48 for it in epochs)


@needs_torch
def test_workers_go_on_when_one_is_killed(tmp_path):
    epochs = job(tmp_path, "-np", "2", "--min-np", "1", "-H", "localhost:1,127.0.0.1:1", blow="kill")
    assert [(it["size"], it["start_rank"], it["worlds"]) for it in epochs] == [(2, 0, 1), (1, 1, 2), (1, 1, 2)]
    assert all(it["all"] and it["read"] == 48 for it in epochs), "the epoch that was disturbed, too"
    assert epochs[1]["resets"] == 1


class Nobody:
    """A launcher's port for drivers that need none."""

    def init(self, slots):
        pass

    def stop(self):
        pass


def drive(run, hosts=None, least=2, most=4, **options):
    """The results of a job whose workers are `run(driver, slot, events)`."""
    it = driver.ElasticDriver(Nobody(), discovery.FixedHosts(hosts or {"a": 2, "b": 2}), least, most, **options)
    it.start(least, lambda slot, events: (run(it, slot, events), time.time()))
    results = it.get_results()
    it.stop()
    return results


def test_a_host_whose_worker_failed_is_left_out():
    seen = {}

    def run(it, slot, events):
        if slot.hostname == "b" and slot.local_rank == 0:
            return 1
        it.record_ready(slot.hostname, slot.local_rank)
        if slot.hostname == "b":
            return 1 if any(event.is_set() for event in events) else 2
        seen[slot.rank] = it.get_slot_info(slot.hostname, slot.local_rank)
        return 0

    results = drive(run)
    assert sorted(results.worker_results) == ["a[0]", "a[1]"]
    assert [(seen[rank].rank, seen[rank].size, seen[rank].cross_size) for rank in (0, 1)] == [(0, 2, 1), (1, 2, 1)]


def test_the_world_may_change_only_so_often():
    def run(it, slot, events):
        for _ in range(3):
            it.record_ready(slot.hostname, slot.local_rank)
        return 1

    assert (
        drive(run, reset_limit=2).error_message
        == "Horovod was shutdown because number of resets during elastic job exceeded limit: 2"
    )


def test_a_worker_that_hangs_is_left_behind(monkeypatch):
    monkeypatch.setattr(driver, "STRAGGLER_SECS", 0.2)
    ended = []

    def run(it, slot, events):
        if slot.hostname == "b":
            ended.append(events[1].wait(10))
            return 9
        it.record_ready(slot.hostname, slot.local_rank)
        return 0

    assert sorted(drive(run, hosts={"a": 1, "b": 1}, least=1).worker_results) == ["a[0]"]
    assert ended == [True], "its host is to end"


def test_workers_that_wait_for_a_newcomer_that_failed_are_not_taken_for_hung(monkeypatch):
    monkeypatch.setattr(driver, "STRAGGLER_SECS", 0.1)
    failed = threading.Event()

    def run(it, slot, events):
        if slot.hostname == "b":
            failed.set()
            return 1
        # It waits for the other to join.
        assert failed.wait(10) and not events[1].wait(0.5), "it was ended"
        it.record_ready(slot.hostname, slot.local_rank)
        return 0

    assert sorted(drive(run, hosts={"a": 1, "b": 1}, least=1).worker_results) == ["a[0]"]


def test_a_worker_that_hangs_after_another_has_failed_is_left_behind(monkeypatch):
    monkeypatch.setattr(driver, "FORMATION_SECS", 0.1)
    monkeypatch.setattr(driver, "FAILED_MARGIN_SECS", 0.1)
    ended = []

    def run(it, slot, events):
        if slot.hostname == "b":
            return 1
        # With nobody left the whole job is over.
        ended.append(events[0].wait(10))
        return 9

    drive(run, hosts={"a": 1, "b": 1}, least=1)
    assert ended == [True]


def test_a_worker_that_another_one_reports_as_hung_is_not_waited_for():
    """Without a report it would have STRAGGLER_SECS, which is longer than this test may take."""
    left, ended = threading.Event(), []

    def run(it, slot, events):
        if slot.hostname == "b":
            left.set()
            ended.append(events[1].wait(driver.STRAGGLER_SECS / 2))
            return 9
        assert left.wait(10)
        it.record_ready(slot.hostname, slot.local_rank, hung=[1], world=it._world)
        return 0

    assert sorted(drive(run, hosts={"a": 1, "b": 1}, least=1).worker_results) == ["a[0]"]
    assert ended == [True], "its host is to end"


def test_ranks_are_reported_as_hung_whatever_raised_the_error(monkeypatch):
    asked = []
    monkeypatch.setattr(elastic, "next_world", lambda keeps, hung: asked.append(list(hung)))
    hangs = PeerHung("rank 1 is silent")
    hangs.ranks = [1]
    # TensorFlow's operations raise their own, which have no ranks.
    errors = [HorovodInternalError("other"), HorovodInternalError("broadcast"), failed(hangs)]
    errors[1].__cause__ = hangs

    def train(state):
        if errors:
            raise errors.pop()

    run_fn(train, lambda: elastic.renew(lambda: None, lambda: None))(ObjectState(lambda it, **_: it, lambda: 0))
    assert asked == [[1], [1], []]


def test_a_report_of_hung_ranks_counts_in_its_own_world_only(monkeypatch):
    monkeypatch.setattr(driver, "HUNG_SECS", 0)

    def run(it, slot, events):
        if slot.hostname == "b":
            # It is slow, and does not hang.
            time.sleep(0.2)
        it.record_ready(slot.hostname, slot.local_rank, hung=[0, 1], world=it._world - 1)
        return 0

    assert sorted(drive(run, hosts={"a": 1, "b": 1}, least=1).worker_results) == ["a[0]", "b[0]"]


@needs_torch
def test_workers_go_on_when_one_hangs(tmp_path):
    options = ["-np", "2", "--min-np", "1", "-H", "localhost:1,127.0.0.1:1"]
    epochs = job(tmp_path, *options, blow="hang", SHOAL_COMM_HEARTBEAT="3")
    assert [(it["size"], it["start_rank"], it["worlds"]) for it in epochs] == [(2, 0, 1), (1, 1, 2), (1, 1, 2)]
    assert all(it["all"] and it["read"] == 48 for it in epochs), "the epoch that was disturbed, too"


def test_a_failed_host_comes_back_after_its_cooldown(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(discovery.time, "time", lambda: clock[0])
    hosts = discovery.HostManager(discovery.FixedHosts({"a": 1, "b": 1}), (1, 10))
    assert hosts.update_available_hosts() == worker.HostUpdateResult.added
    hosts.blacklist("a")
    assert (
        hosts.current_hosts.available_hosts == {"b"}
        and hosts.update_available_hosts() == worker.HostUpdateResult.no_update
    )
    clock[0] += 4
    assert hosts.update_available_hosts() == worker.HostUpdateResult.added
    assert hosts.current_hosts.host_assignment_order == ["b", "a"], "it is the youngest now"
    with pytest.raises(ValueError, match="cooldown"):
        discovery.HostManager(discovery.FixedHosts({}), (5, 1))


def test_hosts_without_slots_and_scripts_that_fail_are_refused():
    with pytest.raises(RuntimeError, match="slots-per-host"):
        discovery.HostDiscoveryScript("echo a", None).find_available_hosts_and_slots()
    assert discovery.HostDiscoveryScript("echo a; echo b:3", 2).find_available_hosts_and_slots() == {"a": 2, "b": 3}
    with pytest.raises(RuntimeError, match="Exit code: 3"):
        discovery.HostDiscoveryScript("exit 3", 1).find_available_hosts_and_slots()
    with pytest.raises(RuntimeError, match="Exit code: 127: there is no such program"):
        discovery.HostDiscoveryScript("/no/such/script", 1).find_available_hosts_and_slots()
    with pytest.raises(ValueError, match="'b:two': a line is to be host:slots"):
        discovery.HostDiscoveryScript("echo a:1; echo b:two", 1).find_available_hosts_and_slots()


def test_a_first_discovery_that_fails_ends_the_job_with_a_sentence(caplog):
    it = driver.ElasticDriver(Nobody(), discovery.HostDiscoveryScript("exit 3", 1), 1, 2)
    with pytest.raises(RuntimeError, match="see above"):
        it.wait_for_available_slots(1)
    it.stop()
    (record,) = caplog.records
    assert "Exit code: 3" in record.getMessage() and record.exc_info is None


def test_a_discovery_that_hangs_holds_up_no_worker(monkeypatch, caplog):
    monkeypatch.setattr(driver, "DISCOVER_HOSTS_FREQUENCY_SECS", 0.01)
    asked, answer = threading.Event(), threading.Event()

    class Slow(discovery.FixedHosts):
        calls = 0

        def find_available_hosts_and_slots(self):
            self.calls += 1
            if self.calls == 2:
                asked.set()
                assert answer.wait(30)
                raise RuntimeError("no answer from the cloud")
            return super().find_available_hosts_and_slots()

    def run(slot, events):
        assert asked.wait(10)
        begun = time.monotonic()
        it.register_worker_client("a", 0, None)
        it.record_ready("a", 0)
        took.append(time.monotonic() - begun)
        answer.set()
        while "discovered again" not in caplog.text and time.monotonic() < begun + 10:
            time.sleep(0.01)
        return 0, time.time()

    took: list[float] = []
    it = driver.ElasticDriver(Nobody(), Slow({"a": 1}), 1, 1)
    it.start(1, run)
    threading.Timer(10, answer.set).start()
    it.get_results()
    it.stop()
    assert took[0] < 5
    assert caplog.text.count("no answer from the cloud") == 1 and "discovered again" in caplog.text


def test_a_discovery_script_that_hangs_is_killed_with_its_children(monkeypatch, tmp_path):
    monkeypatch.setattr(discovery, "SCRIPT_TIMEOUT_S", 0.3)
    script = discovery.HostDiscoveryScript(f"sleep 20 & echo $! > {tmp_path}/child; wait", 1)
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match=r"sleep 20.*did not end within 0.3 s"):
        script.find_available_hosts_and_slots()
    script.close()
    with pytest.raises(RuntimeError, match="the job is over"):
        script.find_available_hosts_and_slots()
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize(
    ("hosts", "told", "skips"),
    [
        # c was beyond the greatest number of workers, and gets b's place.
        ({"a": 1, "c": 1}, worker.HostUpdateResult.mixed, False),
        ({"a": 1, "d": 1}, worker.HostUpdateResult.mixed, False),
        ({"a": 1}, worker.HostUpdateResult.removed, True),
    ],
)
def test_states_are_synchronised_unless_workers_only_left(monkeypatch, hosts, told, skips):
    monkeypatch.setattr(driver, "DISCOVER_HOSTS_FREQUENCY_SECS", 0.01)
    before = {"a": 1, "b": 1, "c": 1} if "c" in hosts else {"a": 1, "b": 1}
    fixed = discovery.FixedHosts(before)
    heard: list[worker.HostUpdateResult] = []
    changed = threading.Event()

    class Client:
        def notify_hosts_updated(self, timestamp, result):
            heard.append(result)
            changed.set()

    def run(slot, events):
        if slot.hostname == "a":
            it.register_worker_client("a", 0, Client())
            fixed.set(hosts)
        elif slot.hostname != "b":
            return 0, time.time()
        assert changed.wait(10)
        it.record_ready(slot.hostname, 0, keeps_state=True)
        if slot.hostname == "a":
            skipped.append(it.skips_sync())
        return 0, time.time()

    skipped: list[bool] = []
    it = driver.ElasticDriver(Nobody(), fixed, 1, 2)
    it.start(2, run)
    it.get_results()
    it.stop()
    assert heard == [told] and skipped == [skips]


def test_a_worker_skips_the_sync_only_where_the_launcher_says_that_all_do(monkeypatch):
    answers, asked, synced = [True, False, None], [], []
    monkeypatch.setattr(elastic, "next_world", lambda keeps, hung: asked.append(keeps) or answers.pop(0))
    state = ObjectState(lambda it, **_: it, lambda: 0)
    state.sync = lambda: synced.append(len(asked))
    errors = [HostsUpdatedInterrupt(True)] * 3

    def train(state):
        if errors:
            raise errors.pop()

    run_fn(train, lambda: elastic.renew(lambda: None, lambda: None))(state)
    assert asked == [True] * 3 and synced == [0, 2]


def test_a_host_that_is_back_at_once_gets_new_workers(monkeypatch):
    monkeypatch.setattr(driver, "DISCOVER_HOSTS_FREQUENCY_SECS", 0.01)
    monkeypatch.setattr(discovery, "DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS", 0)
    begun = []

    def run(it, slot, events):
        begun.append((slot.hostname, it.world_size()))
        if begun.count(("b", 2)) == 1 and slot.hostname == "b":
            return 1
        if slot.hostname == "a":
            it.record_ready("a", 0)
        return 0

    # The next world needs both, so it waits until b is back.
    assert sorted(
        drive(run, hosts={"a": 1, "b": 1}, least=2, cooldown_range=(0.01, 0.01), timeout=10).worker_results
    ) == ["a[0]", "b[0]"]
    assert begun.count(("b", 2)) == 2


def test_places_are_given_in_the_order_of_the_hosts():
    slots = assign([HostInfo("a", 1), HostInfo("b", 2)], 2)
    assert [(it.hostname, it.rank, it.local_rank, it.cross_rank, it.local_size, it.cross_size) for it in slots] == [
        ("a", 0, 0, 0, 1, 2),
        ("b", 1, 0, 1, 2, 2),
        ("b", 2, 1, 0, 2, 1),
    ]
    assert len(assign([HostInfo("a", 4)], 1, 3)) == 3
    with pytest.raises(ValueError, match="slots"):
        assign([HostInfo("a", 1)], 2)


def test_workers_hear_of_hosts_and_strangers_do_not(monkeypatch):
    monkeypatch.setattr(driver, "DISCOVER_HOSTS_FREQUENCY_SECS", 0.02)
    hosts = discovery.FixedHosts({"a": 1})
    server = RendezvousServer()
    it = driver.ElasticDriver(server, hosts, 1, 4)
    port = server.start(create_rendezvous_handler(it), "127.0.0.1", "secret")
    heard = threading.Event()

    class Listener:
        def on_hosts_updated(self, timestamp, result):
            assert result == worker.HostUpdateResult.added
            heard.set()

    def run(slot, events):
        monkeypatch.setenv(worker.SECRET, "another")
        with pytest.raises(ConnectionError, match="launcher"):
            worker.WorkerNotificationManager().init("127.0.0.1", port, None, "a", 0)
        monkeypatch.setenv(worker.SECRET, "secret")
        manager = worker.WorkerNotificationManager()
        manager.register_listener(Listener())
        # A change before it listens is not lost.
        hosts.set({"a": 1, "b": 1})
        time.sleep(0.2)
        manager.init("127.0.0.1", port, None, "a", 0)
        return (0 if heard.wait(10) else 1), time.time()

    it.start(1, run)
    results = it.get_results()
    it.stop()
    assert [code for code, _ in results.worker_results.values()] == [0]


def test_the_loop_restores_after_a_failure_and_goes_on_after_a_change():
    state = ObjectState(lambda it, **_: it, lambda: 0, step=0, seen=[])
    calls = []
    state.register_reset_callbacks([lambda: calls.append("callback")])
    errors = [HorovodInternalError("gone"), HostsUpdatedInterrupt(False), HostsUpdatedInterrupt(True)]
    state.sync = lambda: calls.append("sync")

    def train(state):
        calls.append((state.step, list(state.seen)))
        state.step += 1
        state.seen.append(state.step)
        if errors:
            raise errors.pop(0)
        return "done"

    assert run_fn(train, lambda: calls.append("reset"))(state) == "done"
    assert calls == [
        *("sync", (0, []), "reset", "callback"),
        *("sync", (0, []), "reset", "callback"),
        *("sync", (1, [1]), "reset", "callback"),
        (2, [1, 2]),
    ]


def test_what_is_no_state_is_refused_before_anything_is_called():
    with pytest.raises(TypeError, match="is a dict, which has no sync, restore, on_reset; give a state of hvd.elastic"):
        run_fn(lambda state: None, lambda: None)({"epoch": 0})


def test_hosts_updates_interrupt_and_only_departures_skip_the_sync():
    state = ObjectState(lambda it, **_: it, lambda: 0, step=0)
    state.check_host_updates()
    state.on_hosts_updated(1.0, worker.HostUpdateResult.removed)
    with pytest.raises(HostsUpdatedInterrupt) as raised:
        state.commit()
    assert raised.value.skip_sync
    state.on_hosts_updated(2.0, worker.HostUpdateResult.removed)
    state.on_hosts_updated(2.5, worker.HostUpdateResult.added)
    with pytest.raises(HostsUpdatedInterrupt) as raised:
        state.check_host_updates()
    assert not raised.value.skip_sync
    state.on_hosts_updated(2.0, worker.HostUpdateResult.added)
    state.check_host_updates()
