"""What goes wrong in the middle of tuning jobs: agents and servers that are killed, stops that
come while the search computes.
"""

import json
import os
import random
import signal
import time

import pytest
import records
import traces
from house import BUCKET, eventually, free_port
from jobs import GROUP, Jobs
from test_cli import run
from test_strategies import KEEPS, tag
from tunings import Tunings

SLOW = KEEPS.replace("progress += ", "import time; time.sleep(0.15); progress += ")


class Hard:
    def __init__(self, house):
        self.house = house
        self.connect()

    def connect(self):
        self.jobs = Jobs(self.house)
        self.tunings = Tunings(self.jobs)

    def kept(self, scheduler, trials=9, parallel=2, epochs=9, place="hard", **changes):
        """A search whose trials pause, and go on where they were, with checkpoints."""
        definition = self.tunings.curve(
            epochs=epochs, program=SLOW, CheckpointConfig={"S3Uri": f"s3://{BUCKET}/{place}"}, **changes
        )
        return self.tunings.create(definition, trials=trials, parallel=parallel, tags=tag({"scheduler": scheduler}))

    def states(self, name):
        study = json.loads(run(self.house, "tuning", "show", name, "--json").stdout)
        return [trial["State"] for trial in study["Trials"]]

    def streams(self, trial):
        found = self.jobs.logs_client.describe_log_streams(
            logGroupName=GROUP, logStreamNamePrefix=f"{trial['TrainingJobName']}/"
        )
        return [stream["logStreamName"] for stream in found["logStreams"]]

    def check(self, name, count, may_be_silent=False):
        """Every trial was started once, and each of its values counted once, in order."""
        trials = self.tunings.trials(name)
        assert len(trials) == count == len({trial["TrainingJobName"] for trial in trials})
        asked, reported = [], {}
        for row in records.study(self.house, name):
            record = row["record"]
            if record["type"] == "asked" and "start" in record["answer"]:
                asked.append(record["answer"]["start"]["trial"])
            elif record["type"] == "reported":
                reported.setdefault(record["trial"], []).append(record["resource"])
        assert sorted(asked) == list(range(count))
        silent = set(range(count)) - set(reported)
        assert set(reported) <= set(range(count)) and (may_be_silent or not silent), (
            f"trials that have told no value: {silent}"
        )
        for trial, resources in reported.items():
            assert resources == sorted(set(resources)), (trial, resources)
        return trials, reported


@pytest.fixture
def hard(new_house):
    return Hard(new_house("--instances", "8", "--grace-s", "1", port=free_port()))


@pytest.mark.parametrize("retries", [0, 2])
def test_an_agent_is_killed_in_a_trial(hard, retries):
    """With a RetryStrategy the trial is tried again, as the same training job; without, it has
    failed and the search goes on.
    """
    again = {"RetryStrategy": {"MaximumRetryAttempts": retries}} if retries else {}
    definition = hard.tunings.curve(epochs=8, pause=0.2, **again)
    name = hard.tunings.create(definition, trials=3, parallel=1)
    first = eventually(lambda: hard.tunings.trials(name))[0]
    hard.jobs.saying(first["TrainingJobName"], "epoch=3")
    (agent,) = traces.agents(hard.house).values()
    os.kill(agent, signal.SIGKILL)
    counters = hard.tunings.completed(name)["TrainingJobStatusCounters"]
    trials = hard.tunings.trials(name)
    first = next(trial for trial in trials if trial["TrainingJobName"] == first["TrainingJobName"])
    assert len(trials) == 3
    if not retries:
        assert (counters["Completed"], counters["RetryableError"], first["TrainingJobStatus"]) == (2, 1, "Failed"), (
            counters
        )
        return
    assert (counters["Completed"], counters["RetryableError"]) == (3, 0), counters
    assert len(hard.streams(first)) == 2 and all(
        len(hard.streams(trial)) == 1 for trial in trials if trial is not first
    )
    x = float(first["TunedHyperParameters"]["x"])
    assert first["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] == pytest.approx(
        (x - 0.3) ** 2 + 1 / 8, abs=1e-6
    )
    hard.check(name, 3)


def agents_of(house, jobs):
    """Ids of the agents that serve these training jobs."""
    plans = [json.loads(path.read_text()) for path in (house.data / "runs").glob("*/attempt.json")]
    origins = [plan.get("origin") or plan["attempt"] for plan in plans if plan["job"] in jobs]
    return {
        int(file.read_text().split()[0])
        for origin in origins
        for file in (house.data / "runs" / origin).glob("agent-*.pid")
    }


PAUSING = {
    "asha": {"kind": "asha", "max_resource": 9, "form": "promotion"},
    "round_robin": {"kind": "round_robin", "width": 4},
    "pbt": {"kind": "pbt", "population": 4, "interval": 2, "max_resource": 9},
}


@pytest.mark.parametrize("loses_agents", [False, True], ids=["server", "server and frozen trials"])
@pytest.mark.parametrize("scheduler", PAUSING)
def test_the_server_is_killed_with_paused_trials(hard, scheduler, loses_agents):
    """Paused trials are frozen and outlive their server. Those that do not go on at their
    checkpoints, as further attempts.
    """
    name = hard.kept(PAUSING[scheduler], **{"RetryStrategy": {"MaximumRetryAttempts": 3}} if loses_agents else {})
    eventually(lambda: hard.states(name).count("Paused") >= 2)
    # Nothing changes between the look and the kill.
    os.kill(hard.house.pid, signal.SIGSTOP)
    frozen = agents_of(hard.house, records.paused(hard.house, name))
    hard.house.stop(signal.SIGKILL)
    left = set(traces.agents_of_all(hard.house))
    assert frozen and left >= frozen, "a server's end is no trial's"
    if loses_agents:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    hard.house.start()
    hard.connect()
    it = hard.tunings.completed(name)
    # A population comes to its end with as many replacements as it had bad members.
    count = len(hard.tunings.trials(name)) if scheduler == "pbt" else 9
    assert 4 <= count <= 9
    assert it["TrainingJobStatusCounters"]["Completed"] + it["TrainingJobStatusCounters"]["Stopped"] == count, it[
        "TrainingJobStatusCounters"
    ]
    # A copy may begin with a checkpoint of the last epoch, and have nothing left to do or tell.
    trials, reported = hard.check(name, count, may_be_silent=scheduler == "pbt")
    assert max(max(resources) for resources in reported.values()) == 9, "someone came to the end"
    assert it["BestTrainingJob"]["TrainingJobName"] in {trial["TrainingJobName"] for trial in trials}
    eventually(lambda: not traces.agents_of_all(hard.house))


def test_a_stop_comes_while_the_search_computes(hard):
    chance = random.Random(int(os.environ.get("SHOAL_SEED", "11")))
    for _ in range(6):
        definition = hard.tunings.curve(epochs=1000, pause=0.05)
        name = hard.tunings.create(definition, strategy="Bayesian", trials=5000, parallel=1000)
        time.sleep(chance.uniform(0, 0.4))
        hard.tunings.stop(name)
        it = hard.tunings.wait(name)
        assert it["HyperParameterTuningJobStatus"] == "Stopped"
        assert it["TrainingJobStatusCounters"]["InProgress"] == 0
        ended = hard.tunings.trials(name, MaxResults=100)
        assert {trial["TrainingJobStatus"] for trial in ended} <= {"Stopped"}
        assert len(ended) == it["TrainingJobStatusCounters"]["Stopped"]
    after = hard.tunings.create(hard.tunings.curve(epochs=1, pause=0), trials=2)
    hard.tunings.completed(after)
    assert len(hard.tunings.trials(name, MaxResults=100)) == len(ended), "nothing is started after the end"
