"""The server is killed in every phase of training jobs, again and again: nothing is lost, nothing
is done twice, and what runs does not notice.

SHOAL_SEED repeats a run's moments; SHOAL_SOAK=N kills N times as often.
"""

import hashlib
import os
import random
import signal
import time

import pytest
import records
import traces
from house import eventually, free_port
from jobs import Jobs
from programs import COUNTING

# Kills at moments that it draws.
pytestmark = pytest.mark.alone

SOAK = int(os.environ.get("SHOAL_SOAK", "1"))
KILLS = 5 * SOAK
HOSTS = ("algo-1", "algo-2")


class Killer:
    """Kills a server and starts it again, and keeps the state that each kill hit."""

    def __init__(self, house, phase):
        self.house, self.phase = house, phase
        self.jobs = Jobs(house)
        self.seed = int(os.environ.get("SHOAL_SEED", random.randrange(2**32)))
        self.random = random.Random(f"{self.seed} {phase}")
        self.hit, self.back = [], []

    def program(self, lines, pause=0.01, model=1000, instances=2):
        return self.jobs.python(
            COUNTING,
            instances=instances,
            instance_type="ml.t3.medium",
            name=self.phase.lower(),
            metrics=[("loss", r"loss=(\d+);")],
            Environment={"LINES": str(lines), "PAUSE": str(pause), "MODEL_BYTES": str(model)},
        )

    def kill(self, job, how=signal.SIGKILL):
        """Says whether the job was in the phase, as the journal has it."""
        self.house.stop(how)
        state = records.state(self.house, job)
        self.hit.append((how.name, state))
        started = time.monotonic()
        self.house.start()
        self.jobs.describe(job)
        self.back.append(time.monotonic() - started)
        return state == self.phase

    def kill_in_phase(self, job, how=signal.SIGKILL, longest=0.3):
        """Waits for the phase, and a moment more, and kills; says whether the phase was met, or
        nothing if it is over.
        """
        look = records.live_state(self.house)
        eventually(lambda: look(job) in (self.phase, "Completed"))
        time.sleep(self.random.uniform(0, longest))
        if look(job) != self.phase:
            return None
        return self.kill(job, how)

    def hits(self):
        return self.hit.count(("SIGKILL", self.phase))

    def wants_more(self):
        hits = self.hits()
        assert hits >= KILLS or len(self.hit) < 10 * KILLS, f"kills hit {self.hit}"
        return hits < KILLS

    def check(self, job, lines, instances=2):
        """All that a job of `program` leaves, once."""
        message = f"seed {self.seed}, kills in {self.hit}"
        it = self.jobs.wait(job, 400)
        assert it["TrainingJobStatus"] == "Completed", (message, it.get("FailureReason"), self.jobs.logs(job))
        went = [transition["Status"] for transition in it["SecondaryStatusTransitions"]]
        assert went[-4:] == ["Downloading", "Training", "Uploading", "Completed"] and len(set(went[1:])) == len(
            went[1:]
        ), (message, went)
        hosts = HOSTS[:instances]
        model = self.jobs.artifact(job)
        assert sorted(model) == sorted(hosts), message
        said = [
            text
            for i in range(1, lines + 1)
            for text in ([f"line {i}", f"loss={i};"] if i % 10 == 0 else [f"line {i}"])
        ]
        for host in hosts:
            assert self.jobs.lines(job, host) == [*said, f"model {hashlib.sha256(model[host]).hexdigest()}"], (
                message,
                host,
            )
        values = records.points(self.house, job, "loss")
        assert sorted(values) == sorted(float(i) for i in range(10, lines + 1, 10) for _ in hosts), message
        starts = self.jobs.s3.list_objects_v2(Bucket="tests", Prefix=f"out/{job}/output/starts/")["Contents"]
        assert sorted(key["Key"].rsplit("/", 1)[1].rsplit("-", 1)[0] for key in starts) == sorted(hosts), (
            message,
            "started twice",
        )

    def report(self, figures):
        back = f"the server was back after {max(self.back):.2f} s at most"
        figures(
            f"ended {len(self.hit)} times, {self.hits()} of them by SIGKILL in {self.phase}: {back} (seed {self.seed})"
        )


@pytest.fixture
def killer(new_house, request, figures):
    phase = request.param
    killer = Killer(new_house("--instances", "2", port=free_port()), phase)
    yield killer
    killer.report(figures)


def in_phase(phase):
    return pytest.mark.parametrize("killer", [phase], indirect=True, ids=[phase])


def ranks(killer):
    return traces.identities(traces.programs(killer.house, "/opt/ml/input/data/code/run.sh"))


@in_phase("Training")
def test_while_it_trains(killer):
    lines = 600 * SOAK
    job = killer.program(lines)
    for host in HOSTS:
        killer.jobs.saying(job, "line 1", host)
    running = ranks(killer)
    agents = traces.identities(traces.agents(killer.house).values())
    assert len(running) >= 2 and len(agents) == 2
    while killer.wants_more():
        assert killer.kill_in_phase(job), f"the job was over before kill {len(killer.hit)}"
        assert ranks(killer) == running and traces.identities(traces.agents(killer.house).values()) == agents, (
            killer.seed
        )
    # An orderly end is no different.
    assert killer.kill_in_phase(job, signal.SIGTERM) is not None and ranks(killer) == running
    killer.check(job, lines)


@in_phase("Pending")
def test_while_it_waits(killer):
    """Behind a job that holds all instances, and which nothing of this disturbs."""
    first = killer.program(500 * SOAK)
    killer.jobs.saying(first, "line 1")
    running = ranks(killer)
    second = killer.program(20)
    while killer.wants_more():
        assert killer.kill_in_phase(second), f"the first job was over before kill {len(killer.hit)}"
        assert ranks(killer) == running
    killer.kill_in_phase(second, signal.SIGTERM)
    killer.check(first, 500 * SOAK)
    killer.check(second, 20)


@in_phase("Downloading")
def test_while_it_downloads(killer):
    """A short phase, as nothing is copied: met by killing at once, and by many jobs."""
    while killer.wants_more():
        job = killer.program(20)
        killer.kill_in_phase(job, longest=0.005)
        killer.check(job, 20)


@in_phase("Uploading")
def test_while_it_uploads(killer):
    while killer.wants_more():
        job = killer.program(20, model=30_000_000)
        for how in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            if killer.kill_in_phase(job, how) is None:
                break
        killer.check(job, 20)
