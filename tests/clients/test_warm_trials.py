"""Instances that are kept for the next training job or trial: nothing of the one before is seen,
and whatever happens to them costs no job.

Training jobs with a `KeepAlivePeriodInSeconds` keep theirs as trials do.
"""

import contextlib
import os
import re
import signal
import time

import data
import pytest
import traces
from house import eventually
from jobs import Jobs

LEAVES = """
ls -A /tmp /dev/shm /opt/ml/model /opt/ml/output /opt/ml/checkpoints "$SM_CHANNEL_TRAIN" | tr '\\n' ' '; echo seen
ps -e -o args= | grep -c '[s]leep 1000'
for d in /tmp /dev/shm /opt/ml/model /opt/ml/output "$SM_CHANNEL_TRAIN"; do mkdir -p $d/left; echo left > $d/left/file; chmod 500 $d/left; done
(setsid sleep 1000 >/dev/null 2>&1 &)
echo job $TRAINING_JOB_NAME
"""


def servers(make_house, kind, *flags):
    if kind == "as we are":
        return Jobs(make_house(*flags))
    if kind == "ordinary user":
        return Jobs(make_house(*flags, ordinary=True))
    return Jobs(make_house(*flags, variables={"SHOAL_ISOLATION": "processes"}))


@pytest.fixture(params=["as we are", "ordinary user", "plain processes"], scope="module")
def jobs(request, make_house):
    jobs = servers(make_house, request.param, "--lease-s", "90", "--grace-s", "1", "--silence-s", "5")
    jobs.kind = request.param
    jobs.put("leaves/leave.sh", LEAVES)
    jobs.put("warm/a.csv", data.as_csv(data.rows(500, 1)))
    return jobs


def kept(jobs):
    """Ids of the processes of agents that serve nobody, when there are no others."""
    pids = []
    for run in (jobs.house.data / "runs").iterdir():
        # A directory may be removed meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if not (run / "attempt.json").exists():
                pids += [int(file.read_text().split()[0]) for file in run.glob("agent-*.pid")]
    return sorted(pid for pid in pids if traces.PROC.joinpath(str(pid)).exists())


def keeping(seconds=600, instances=1):
    return {
        "InstanceType": "ml.m5.large",
        "InstanceCount": instances,
        "VolumeSizeInGB": 1,
        "KeepAlivePeriodInSeconds": seconds,
    }


def shell(jobs, line, seconds=600, prefix="warm/"):
    """A job of one line, over."""
    name = jobs.command(line, ResourceConfig=keeping(seconds), InputDataConfig=[jobs.channel("train", prefix)])
    return name, jobs.wait(name)


def xgboost(jobs, seconds=600, instances=1, **hyperparameters):
    changes = {"ResourceConfig": keeping(seconds, instances)}
    wanted = {"num_round": 4, "objective": "binary:logistic", "eval_metric": "logloss", **hyperparameters}
    name = jobs.xgboost("warm/", instances=instances, changes=changes, **wanted)
    jobs.completed(name)
    return name


def settled(jobs):
    """The agents that are kept, once no job runs any more."""
    return eventually(
        lambda: (
            not [path for path in (jobs.house.data / "runs").iterdir() if (path / "attempt.json").exists()]
            and kept(jobs)
        )
    )


def nothing_kept(jobs):
    eventually(lambda: not kept(jobs) and not list((jobs.house.data / "runs").iterdir()))
    traces.nothing_left(jobs.house, set())


# Where the machine is too busy for a kept agent to answer within seconds, a job gets a new
# instance: so many tries to see one that is kept.
TRIES = range(6)


def test_a_program_sees_nothing_of_the_one_before(jobs):
    def leaving():
        return shell(jobs, 'sh "$SM_CHANNEL_TRAIN/leave.sh"', prefix="leaves/")

    first, _ = leaving()
    served_on = 0
    for _ in TRIES:
        agents = settled(jobs)
        name, told = leaving()
        assert told["TrainingJobStatus"] == "Completed", told
        assert jobs.lines(name)[-1] == f"job {name}"
        if jobs.kind != "plain processes":
            assert [line for line in jobs.lines(name) if not line.startswith("[shoal]")] == [
                line.replace(first, name) for line in jobs.lines(first) if not line.startswith("[shoal]")
            ]
        assert sorted(jobs.artifact(name)) == sorted(jobs.artifact(first))
        served_on += settled(jobs) == agents
        if served_on == 2:
            return
    pytest.fail("the same agent serves on")


def test_a_warm_xgboost_is_the_same_xgboost(jobs):
    first = xgboost(jobs, max_depth=3)
    for _ in TRIES:
        agents, zygotes = set(settled(jobs)), set(traces.programs(jobs.house, "algorithm"))
        assert bool(zygotes) == (jobs.kind != "plain processes")
        other = xgboost(jobs, max_depth=5)
        again = xgboost(jobs, max_depth=3)
        # Those of earlier tests may have made room.
        if agents & set(settled(jobs)) and (not zygotes or zygotes & set(traces.programs(jobs.house, "algorithm"))):
            break
    else:
        pytest.fail("the same agent and the same zygote serve on")
    assert (
        jobs.artifact(first)["xgboost-model"]
        == jobs.artifact(again)["xgboost-model"]
        != jobs.artifact(other)["xgboost-model"]
    )
    # A plain process sees its run's directory, which is the first one's only where the same agent
    # served both.
    plain = [
        [
            re.sub("/runs/[^/]+/", "/runs/ID/", line.partition("]")[2])
            for line in jobs.lines(name)
            if "[shoal]" not in line
        ]
        for name in (first, again)
    ]
    assert plain[0] == plain[1]


def test_several_hosts(jobs):
    first = xgboost(jobs, instances=2)
    for _ in TRIES:
        before = set(eventually(lambda: len(it := settled(jobs)) >= 2 and it))
        again = xgboost(jobs, instances=2)
        if len(before & set(settled(jobs))) >= 2:
            break
    else:
        pytest.fail("the same agents serve on")
    assert jobs.artifact(first)["xgboost-model"] == jobs.artifact(again)["xgboost-model"]


def test_failed_and_stopped_jobs_cost_the_next_nothing(jobs):
    for line, status in (
        ("exit 3", "Failed"),
        ("kill -9 $$", "Failed"),
        ("true", "Completed"),
        ("/no/such/program", "Failed"),
        ("true", "Completed"),
    ):
        assert shell(jobs, line)[1]["TrainingJobStatus"] == status
        settled(jobs)
    name = jobs.command(
        "echo up; sleep 1000", ResourceConfig=keeping(), InputDataConfig=[jobs.channel("train", "warm/")]
    )
    jobs.saying(name, "up", "algo-1")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    assert shell(jobs, "true")[1]["TrainingJobStatus"] == "Completed"


@pytest.mark.parametrize("whom", ["agent", "stopped agent", "zygote", "init"])
def test_whatever_happens_to_a_kept_instance(jobs, whom):
    if jobs.kind == "plain processes" and whom in ("zygote", "init"):
        pytest.skip("plain processes do not promise this: they keep agents only")
    xgboost(jobs)
    agents = settled(jobs)
    if "agent" in whom:
        victims = agents
    else:
        victims = (
            traces.programs(jobs.house, "algorithm") if whom == "zygote" else list(traces.inits(jobs.house).values())
        )
    for pid in victims:
        # One that nobody has wanted for a while may have made room for the job just run.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP if "stopped" in whom else signal.SIGKILL)
    began = time.monotonic()
    xgboost(jobs)
    assert time.monotonic() - began < 80, "it waits for no lease"
    settled(jobs)


def test_a_killed_server_loses_nothing_and_leaves_nothing(jobs):
    shell(jobs, "true")
    settled(jobs)
    name = jobs.command(
        "echo up; sleep 3; echo done", ResourceConfig=keeping(), InputDataConfig=[jobs.channel("train", "warm/")]
    )
    jobs.saying(name, "up", "algo-1")
    jobs.house.stop(signal.SIGKILL)
    jobs.house.start()
    jobs.connect()
    assert jobs.wait(name)["TrainingJobStatus"] == "Completed"
    assert jobs.lines(name)[-1] == "done"
    settled(jobs)
    jobs.house.stop(signal.SIGKILL)
    # An agent that serves no job ends with the server.
    jobs.house.start()
    jobs.connect()
    nothing_kept(jobs)


def test_they_end_when_nobody_wants_them(jobs):
    shell(jobs, "true", seconds=1)
    xgboost(jobs, seconds=1)
    nothing_kept(jobs)
