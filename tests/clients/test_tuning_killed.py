"""The server is killed in the middle of tuning jobs: the search goes on as if it had not been, and
no trial runs twice.

SHOAL_SEED repeats a run's moments; SHOAL_SOAK=N kills N times as often.
"""

import os
import random
import signal
import time

import pytest
import records
from house import free_port
from jobs import Jobs
from test_tuning_job import epochs_of, hyperband
from tunings import OVER, Tunings

# Kills at moments that it draws.
pytestmark = pytest.mark.alone

SOAK = int(os.environ.get("SHOAL_SOAK", "1"))
TRIALS = 30


class Killed:
    def __init__(self, house):
        self.house = house
        self.jobs = Jobs(house)
        self.tunings = Tunings(self.jobs)
        self.seed = int(os.environ.get("SHOAL_SEED", random.randrange(2**32)))
        self.random = random.Random(self.seed)
        self.kills = 0

    def until_the_end(self, name, kills, longest=1.5):
        """Kills the server at random moments, and then lets the tuning job end."""
        while self.kills < kills and self.tunings.describe(name)["HyperParameterTuningJobStatus"] not in OVER:
            time.sleep(self.random.uniform(0, longest))
            self.house.stop(signal.SIGKILL)
            time.sleep(self.random.choice([0, 0, 0.2]))
            self.house.start()
            self.kills += 1
        return self.tunings.completed(name, 300)

    def check(self, name):
        """Every trial's epochs were run once, in order, in one attempt."""
        message = f"seed {self.seed}, {self.kills} kills"
        trials = self.tunings.trials(name)
        assert len(trials) == TRIALS == len({trial["TrainingJobName"] for trial in trials}), message
        numbers = sorted(int(trial["TrainingJobName"].split("-")[-2]) for trial in trials)
        assert numbers == list(range(1, TRIALS + 1)), message
        for trial in trials:
            ran = epochs_of(self.jobs, trial)
            assert ran == list(range(1, len(ran) + 1)), (message, trial["TrainingJobName"], ran)
            began = [line for line in self.jobs.lines(trial["TrainingJobName"]) if line.startswith("trial of x=")]
            assert len(began) == 1, (message, trial["TrainingJobName"], "was started twice")
        it = self.tunings.describe(name)
        counters = it["TrainingJobStatusCounters"]
        assert counters["Completed"] + counters["Stopped"] == TRIALS, (message, counters)
        return it, {trial["TunedHyperParameters"]["x"]: len(epochs_of(self.jobs, trial)) for trial in trials}


@pytest.fixture
def killed(new_house, figures):
    killed = Killed(new_house("--instances", "8", port=free_port()))
    yield killed
    figures(f"{killed.kills} kills of the server in tuning jobs (seed {killed.seed})")


def test_one_at_a_time_it_is_the_same_search_as_undisturbed(killed):
    """With one place the order of events is one, so the whole study must be the same: trials,
    values, verdicts, and the best.
    """
    plain = hyperband(killed.tunings, trials=TRIALS, parallel=1, pause=0.02)
    killed.tunings.completed(plain, 300)
    expected, _ = killed.check(plain)
    name = hyperband(killed.tunings, trials=TRIALS, parallel=1, pause=0.02)
    killed.until_the_end(name, 6 * SOAK)
    it, _ = killed.check(name)
    # A program that was to be stopped may have run on while the server was away: what it said then
    # is no part of the study.
    assert records.study(killed.house, name) == records.study(killed.house, plain), f"seed {killed.seed}"
    best = [job["BestTrainingJob"] for job in (expected, it)]
    assert best[0]["TunedHyperParameters"] == best[1]["TunedHyperParameters"], f"seed {killed.seed}"
    assert best[0]["TrainingJobName"].split("-")[-2] == best[1]["TrainingJobName"].split("-")[-2]


def test_four_at_a_time_no_trial_is_lost_or_run_twice(killed):
    name = hyperband(killed.tunings, trials=TRIALS, parallel=4, pause=0.05)
    it = killed.until_the_end(name, 10 * SOAK)
    _, ran = killed.check(name)
    best = float(it["BestTrainingJob"]["TunedHyperParameters"]["x"])
    whole = [float(x) for x, epochs in ran.items() if epochs == 9]
    assert best == min(whole, key=lambda x: abs(x - 0.3)), f"seed {killed.seed}"
