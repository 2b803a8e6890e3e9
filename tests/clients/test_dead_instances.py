"""One of three hosts dies in each phase: the training job fails and names it, the others are
stopped, and nothing is left.
"""

import os
import random
import signal
import time

import pytest
import records
import traces
from house import eventually
from jobs import Jobs

# Long enough to be killed while it is uploaded.
PROGRAM = """
if [ "$UPLOAD" = yes ]; then head -c 60000000 /dev/urandom > $SM_MODEL_DIR/$SM_CURRENT_HOST; exit 0; fi
trap 'echo told to stop; exit 0' TERM; echo ready; while true; do sleep 0.1; done
"""


@pytest.fixture(scope="module")
def jobs(make_house):
    # Programs are told to stop, and say so, however slow the machine is.
    return Jobs(make_house("--grace-s", "60"))


def victims(house, kind):
    if kind == "agent":
        return traces.agents(house)
    if kind == "init":
        return traces.inits(house)
    # A program's parent is the init of its instance.
    of = {pid: host for host, pid in traces.inits(house).items()}
    parents = {pid: traces.parent(pid) for pid in traces.programs(house, "/opt/ml/input/data/code/run.sh")}
    return {of[parent]: pid for pid, parent in parents.items() if parent in of}


def killed(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


# A phase that is over when it is looked for costs another job: on a busy machine many.
TRIES = 100
PHASES = ["Pending", "Starting", "Downloading", "Training", "Uploading"]
# Who is killed, and when; and what the reason says besides the host.
DEATHS = [
    ("agent", "Downloading", "InternalServerError"),
    ("agent", "Training", "InternalServerError"),
    ("init", "Training", "SIGKILL"),
    ("program", "Training", "SIGKILL"),
    ("agent", "Uploading", "InternalServerError"),
]


@pytest.mark.parametrize("kind, phase, said", DEATHS, ids=[f"{kind}-{phase}" for kind, phase, _ in DEATHS])
def test_one_host_dies(jobs, kind, phase, said):
    house, look = jobs.house, records.live_state(jobs.house)
    host = random.randint(1, 3)
    for _ in range(TRIES):
        name = jobs.script(
            PROGRAM,
            instances=3,
            instance_type="ml.t3.medium",
            Environment={"UPLOAD": "yes" if phase == "Uploading" else "no"},
        )
        if phase == "Training":
            for other in (1, 2, 3):
                jobs.saying(name, "ready", f"algo-{other}")
        found = {}
        # Not beyond the phase: these programs run until they are told to stop.
        while look(name) in PHASES[: PHASES.index(phase) + 1]:
            if look(name) == phase and host in (found := victims(house, kind)):
                break
        state = look(name)
        met = state == phase and killed(found[host])
        if met:
            break
        # The phase, or what was found, was over before it could be met: another job, another
        # chance.
        if state not in ("Completed", "Failed"):
            jobs.sagemaker.stop_training_job(TrainingJobName=name)
        jobs.wait(name)
        traces.nothing_left(house)
    assert met, f"{phase} was not met in {TRIES} jobs"
    reason = jobs.failed(name)
    assert f"algo-{host}" in reason and said in reason, (host, reason)
    if phase == "Training":
        for other in {1, 2, 3} - {host}:
            jobs.saying(name, "told to stop", f"algo-{other}")
    traces.nothing_left(house)


def test_one_init_dies_before_its_program_begins(jobs):
    house, look = jobs.house, records.live_state(jobs.house)
    host = random.randint(1, 3)
    for _ in range(TRIES):
        name = jobs.script(PROGRAM, instances=3, instance_type="ml.t3.medium", Environment={"UPLOAD": "no"})
        agents = eventually(lambda: (found := traces.agents(house)) and len(found) == 3 and found)
        # The others wait, so that none of their programs begins.
        others = [pid for other, pid in agents.items() if other != host]
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        # None comes while the host that makes the network is held before it has made it.
        init, end = None, time.monotonic() + 5
        while init is None and time.monotonic() < end and look(name) in PHASES[: PHASES.index("Training")]:
            init = traces.init_below(agents[host])
        # Held as well, so that the phase cannot end between the look and the kill.
        os.kill(agents[host], signal.SIGSTOP)
        met = init is not None and look(name) == "Downloading"
        # What was found may have been about to leave its place to a copy of itself.
        while met and (init := traces.init_below(agents[host])):
            killed(init)
        for pid in agents.values():
            os.kill(pid, signal.SIGCONT)
        if met:
            break
        if look(name) not in ("Completed", "Failed"):
            jobs.sagemaker.stop_training_job(TrainingJobName=name)
        jobs.wait(name)
        traces.nothing_left(house)
    assert met, f"no init was met in {TRIES} jobs"
    assert f"algo-{host}" in jobs.failed(name)
    traces.nothing_left(house)
