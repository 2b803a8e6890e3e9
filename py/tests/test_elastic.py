"""Ranks leave and come while the others go on: no sample is lost or read twice, and the weights
are those of a training that nothing disturbed.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time

import pytest
import torch_ranks
from torch_ranks import HERE

from shoal.address import own_address
from shoal.comm import ConfigError
from shoal.elastic import FileRoster, Samples, Settings, State, parse_hosts, run
from shoal.parallel import Invalid

PROGRAM = str(HERE / "elastic_ranks.py")
TIMEOUT_S = 150
needs_torch = torch_ranks.needs_torch()


class Rank:
    """A process of the training, and what it says."""

    def __init__(
        self, directory, rank: int, size: int, *, joins: bool = False, pause: float = 0.0, until: str = "", **more: str
    ):
        variables = {
            "SHOAL_COMM_DIRECTORY": str(directory / "meeting"),
            "SHOAL_COMM_HEARTBEAT": "30",
            "SHOAL_COMM_JOINS": str(int(joins)),
            **more,
        }
        self.process = torch_ranks.start(rank, size, 1, PROGRAM, str(pause), until, **variables)
        self.lines: queue.Queue[str] = queue.Queue()
        self.heard: list[dict] = []
        threading.Thread(
            target=lambda: [*map(self.lines.put, self.process.stdout), self.lines.put("")], daemon=True
        ).start()

    def hear(self, wanted) -> dict:
        """The next thing that it says that is wanted."""
        end = time.monotonic() + TIMEOUT_S
        while True:
            try:
                line = self.lines.get(timeout=max(end - time.monotonic(), 0.01))
            except queue.Empty:
                line = ""
            if not line:
                pytest.fail(f"it says nothing more: {torch_ranks.said(self.process)}")
            said = json.loads(line)
            self.heard.append(said)
            if wanted(said):
                return said

    def step(self, number: int) -> dict:
        return self.hear(lambda said: said.get("step", 0) >= number)

    def size(self, size: int) -> dict:
        return self.hear(lambda said: said.get("of") == size)

    def last(self) -> dict:
        said = self.hear(lambda said: "once" in said)
        assert self.process.wait(TIMEOUT_S) == 0, torch_ranks.said(self.process)
        return said


@pytest.fixture(scope="module")
def weights():
    """Those of a training that nothing disturbed."""
    done = subprocess.run(
        [torch_ranks.PYTHON, PROGRAM, "alone"],
        env=torch_ranks.environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture
def ranks(tmp_path):
    """Starts ranks; whatever is left of them is ended."""
    started: list[Rank] = []

    def start(*args, **options) -> Rank:
        started.append(Rank(tmp_path, *args, **options))
        return started[-1]

    yield start
    for it in started:
        it.process.kill()
        it.process.wait()


def near(given, wanted) -> bool:
    return all(
        abs(a - b) < 1e-5 for one, other in zip(given, wanted, strict=True) for a, b in zip(one, other, strict=True)
    )


@needs_torch
def test_ranks_are_killed_and_others_come(ranks, weights, tmp_path):
    go = tmp_path / "go"
    first = [ranks(rank, 3, pause=0.02, until=str(go)) for rank in range(3)]
    first[0].step(5)
    # The oldest rank, which began with the meeting place.
    first[0].process.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    first[1].size(2)
    took = time.monotonic() - killed
    # While it loads, the others train.
    fourth = ranks(0, 1, joins=True, pause=0.02, until=str(go))
    fourth.hear(lambda said: "here" in said)
    go.touch()
    ends = [it.last() for it in (first[1], first[2], fourth)]
    assert [it["rank"] for it in ends] == [0, 1, 2], "the oldest first, newcomers behind"
    for it in ends:
        assert it["once"] and it["size"] == 3
        assert set(it["sizes"]) == {2, 3} and it["sizes"][0] == 3
        assert near(it["weights"], weights)
    assert took < 10, "known by the connection, not by the heartbeat"


@needs_torch
def test_a_rank_that_hangs_is_left_behind_and_hosts_leave_the_roster(ranks, weights, tmp_path):
    roster, go = tmp_path / "roster", tmp_path / "go"
    roster.write_text("one:1\ntwo:1\nthree:1\n")
    options = {"pause": 0.02, "until": str(go), "SHOAL_COMM_HEARTBEAT": "3", "SHOAL_ELASTIC_ROSTER": str(roster)}
    first = [ranks(rank, 3, SHOAL_ELASTIC_HOST=host, **options) for rank, host in enumerate(("one", "two", "three"))]
    first[0].step(3)
    first[2].process.send_signal(signal.SIGSTOP)
    first[0].size(2)
    new = roster.with_name("new")
    new.write_text("two:1\n")
    new.rename(roster)
    assert first[0].hear(lambda said: "dismissed" in said) == {"dismissed": "one"}
    assert first[0].process.wait(TIMEOUT_S) == 0
    go.touch()
    end = first[1].last()
    assert end["once"] and (end["rank"], end["size"]) == (0, 1) and near(end["weights"], weights)
    assert set(end["sizes"]) == {1, 2, 3}


@needs_torch
def test_scripts_of_torchruns_start_again_and_meet_apart_from_those_before(tmp_path):
    command = [
        torch_ranks.PYTHON,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        "1:2",
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "2",
    ]
    command += [
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "127.0.0.1:0",
        "--rdzv-conf",
        "last_call_timeout=1",
        "--local-addr",
        "127.0.0.1",
    ]
    command += ["--monitor-interval", "0.1", str(HERE / "torchrun_ranks.py"), str(tmp_path)]
    done = subprocess.run(command, env=torch_ranks.environment(), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    plain = [json.loads((tmp_path / f"plain.{rank}").read_text()) for rank in range(2)]
    assert [(it["restarts"], it["first"]) for it in plain] == [(1, 3), (1, 3)]
    assert plain[0]["weights"] == plain[1]["weights"]
    assert json.loads((tmp_path / "in_place.1").read_text()) == {"once": True, "size": 2}


@needs_torch
def test_a_rank_of_torchruns_hangs_and_another_joins(weights, tmp_path):
    """The agent does not notice either, so the other rank stays in place; it ends with the error
    that a rank was killed.
    """
    program = str(HERE / "torchrun_elastic.py")

    def eventually(ask):
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            with contextlib.suppress(FileNotFoundError):
                if answer := ask():
                    return answer
            time.sleep(0.05)
        agent.kill()
        pytest.fail(agent.communicate()[1])

    def printed(name, wanted):
        # The last line may be incomplete.
        lines = (tmp_path / f"lines.{name}").read_text().split("\n")[:-1]
        return next((it for it in map(json.loads, lines) if wanted(it)), None)

    command = [
        torch_ranks.PYTHON,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "127.0.0.1:0",
    ]
    command += ["--local-addr", "127.0.0.1", program, str(tmp_path)]
    variables = {**torch_ranks.environment(), "SHOAL_COMM_HEARTBEAT": "3"}
    agent = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    newcomer = None
    try:
        hung = json.loads(eventually((tmp_path / "process.1").read_text))["pid"]
        eventually(lambda: printed("0", lambda it: it.get("step", 0) >= 3))
        os.kill(hung, signal.SIGSTOP)
        eventually(lambda: printed("0", lambda it: it.get("of") == 1))
        environment = json.loads((tmp_path / "process.0").read_text())["environment"]
        newcomer = subprocess.Popen(
            [torch_ranks.PYTHON, program, str(tmp_path)], env={**environment, "SHOAL_COMM_JOINS": "1"}
        )
        eventually(lambda: printed("joined", lambda it: it.get("of") == 2))
        (tmp_path / "go").touch()
        for name, rank in (("0", 0), ("joined", 1)):
            end = eventually(lambda name=name: printed(name, lambda it: "once" in it))
            assert end["once"] and (end["rank"], end["size"]) == (rank, 2) and set(end["sizes"]) == {1, 2}
            assert near(end["weights"], weights)
        assert newcomer.wait(TIMEOUT_S) == 0
        os.kill(hung, signal.SIGKILL)
        errors = agent.communicate(timeout=TIMEOUT_S)[1]
        assert agent.returncode == 1 and f"pid: {hung}" in errors, errors
    finally:
        for it in filter(None, (agent, newcomer)):
            it.kill()
            it.wait()
        for file in tmp_path.glob("process.*"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(json.loads(file.read_text())["pid"], signal.SIGKILL)


def test_samples_are_read_once_whatever_the_ranks():
    samples = Samples(50, workers=4, batch=3, seed=1)
    read = []
    for size in (3, 1, 4, 2, 3):
        total = samples.total()
        step = [index for rank in range(size) for part in samples.parts(rank, size) for index in part.indices]
        assert len(step) == total
        read += step
        kept = samples.state_dict()
        samples.finish()
    assert samples.epoch == 1 and sorted(read) == list(range(50))
    samples.load_state_dict(kept)
    assert (samples.epoch, samples.read, samples.steps_left()) == (0, 48, 1)
    with pytest.raises(Invalid, match="SHOAL_ELASTIC_MOST=4"):
        samples.parts(0, 5)


def test_a_state_goes_back_to_its_last_commit():
    samples = Samples(50, workers=2, batch=5)
    state = State(samples=samples, seen=[1], step=3)
    state.seen.append(2)
    samples.finish()
    state.restore()
    assert (state.seen, state.step, samples.read) == ([1], 3, 0)
    state.step, state.seen = 4, [5]
    samples.finish()
    state.commit()
    state.seen.append(6)
    state.restore()
    assert (state.seen, state.step, samples.read) == ([5], 4, 10)
    with pytest.raises(ValueError, match="commit"):
        State(commit=1)
    with pytest.raises(RuntimeError, match="run"):
        _ = state.world
    with pytest.raises(TypeError, match="the state is a dict; give a State"):
        run(lambda state: None, {"step": 0})


def test_rosters_are_lines_of_hosts(tmp_path):
    assert parse_hosts("a:2\n\n# gone: b:1\nc\n", slots=3) == {"a": 2, "c": 3}
    with pytest.raises(ValueError, match="line 2"):
        parse_hosts("a:2\nb:x\n")
    path = tmp_path / "roster"
    roster = FileRoster(path)
    assert roster.hosts() is None
    path.write_text("a:1\n")
    assert roster.hosts() == {"a": 1}
    path.write_text("nonsense:\n")
    assert roster.hosts() == {"a": 1}, "the last good one counts"


def test_settings_come_from_the_environment():
    given = Settings.from_env({"SHOAL_ELASTIC_LEAST": "2", "SHOAL_ELASTIC_MOST": "4", "SM_CURRENT_HOST": "algo-2"})
    assert (given.least, given.most, given.host, given.roster) == (2, 4, "algo-2", None)
    with pytest.raises(ConfigError, match="SHOAL_ELASTIC_LEAST"):
        Settings.from_env({"SHOAL_ELASTIC_LEAST": "few"})
    with pytest.raises(ConfigError, match="most not below least"):
        Settings.from_env({"SHOAL_ELASTIC_LEAST": "5", "SHOAL_ELASTIC_MOST": "4"})


def test_an_instance_is_reached_at_its_address_in_the_job(monkeypatch):
    monkeypatch.setenv("SM_CURRENT_HOST", "localhost")
    assert own_address() == "127.0.0.1", "the route to the outside may be another network's"
    monkeypatch.setenv("SM_CURRENT_HOST", "algo-2")
    monkeypatch.setenv("SHOAL_HOST_ADDRESSES", "algo-1=127.0.1.1,algo-2=127.0.1.2")
    assert own_address() == "127.0.1.2"
    monkeypatch.delenv("SHOAL_HOST_ADDRESSES")
    elsewhere = own_address()
    monkeypatch.delenv("SM_CURRENT_HOST")
    assert elsewhere == own_address(), "a name that nothing resolves"
