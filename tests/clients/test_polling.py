"""Clients that look seldom look oftener under `shoal exec`, with the same patience; and keep
their own pace when told to.
"""

import json
import sys
import threading

import pytest
from botocore.config import Config
from botocore.exceptions import HTTPClientError
from house import eventually
from jobs import Jobs

PROGRAM = """
import boto3, json
waiter = boto3.client("sagemaker").get_waiter("training_job_completed_or_stopped")
print(json.dumps([waiter.config.delay, waiter.config.max_attempts]))
"""

# A module of an SDK that is imported after the first client was made.
MODULE = """
import functools, time

def wait(job, poll=5):
    return poll

class Session:
    @staticmethod
    def wait(job, *, poll=30, other=7):
        return poll, other

    @functools.wraps(wait)
    def decorated(*arguments):
        return wait(*arguments)

def quick(poll=0.1, delay=9):
    return poll, delay

def follow(poll=10):
    last_describe_job_call = time.time() - 2
    return time.time() - last_describe_job_call >= 30
"""
LATE = """
import boto3, json, sys
boto3.client("sagemaker")
sys.path.insert(0, sys.argv[1])
from sagemaker.late import Session, follow, quick, wait
print(json.dumps([wait("a"), wait("a", 3), Session.wait("a"), Session.decorated("a"), quick(), follow()]))
"""


@pytest.mark.parametrize("polling, expected", [("", [0.25, 4 * 120 * 180]), ("keep", [120, 180])])
def test_a_waiters_own_pace(house, polling, expected):
    variables = {**house.environment, "SHOAL_SDK_POLLING": polling}
    said = house.shoal("exec", "--", sys.executable, "-c", PROGRAM, env=variables)
    assert json.loads(said.stdout) == expected


EVERY_WAITER = """
import boto3, json
waiters = boto3.client("sagemaker")._get_waiter_config()["waiters"]
print(json.dumps({name: [waiter["delay"], waiter["delay"] * waiter["maxAttempts"]] for name, waiter in waiters.items()}))
"""


def test_waiters_where_the_plugin_cannot_be_loaded(house):
    """As in the AWS CLI with a Python of its own: a look every second, with the patience of
    AWS's model.
    """

    def waiters(polling):
        without_plugin = {**house.environment, "SHOAL_SDK_POLLING": polling}
        return json.loads(
            house.shoal(
                "exec",
                "--",
                "env",
                "-u",
                "BOTOCORE_EXPERIMENTAL__PLUGINS",
                sys.executable,
                "-c",
                EVERY_WAITER,
                env=without_plugin,
            ).stdout
        )

    own = waiters("keep")
    assert own["TrainingJobCompletedOrStopped"] == [120, 120 * 180]
    assert waiters("") == {name: [1, patience] for name, (_, patience) in own.items()}


@pytest.mark.parametrize(
    "polling, expected",
    [("", [0.25, 3, [0.25, 7], 0.25, [0.1, 9], True]), ("keep", [5, 3, [30, 7], 5, [0.1, 9], False])],
)
def test_every_poll_of_a_module_that_comes_late(house, tmp_path, polling, expected):
    (tmp_path / "sagemaker").mkdir()
    (tmp_path / "sagemaker/__init__.py").write_text("")
    (tmp_path / "sagemaker/late.py").write_text(MODULE)
    variables = {**house.environment, "SHOAL_SDK_POLLING": polling}
    said = house.shoal("exec", "--", sys.executable, "-c", LATE, str(tmp_path), env=variables)
    assert json.loads(said.stdout) == expected


def test_a_waiters_answer_is_held_until_the_job_ends(jobs):
    """A waiter that may look only twice, a second apart, and finds a job that takes longer than
    that.
    """
    name = jobs.command("sleep 1.5")
    jobs.sagemaker.get_waiter("training_job_completed_or_stopped").wait(
        TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 2}
    )
    assert jobs.describe(name)["TrainingJobStatus"] == "Completed"


def test_a_server_that_stops_waits_for_no_held_answer(new_house):
    """Whoever is held hears that the server is gone; an answer would mean that the server had
    waited for it.
    """
    house = new_house()
    jobs = Jobs(house)
    name = jobs.command("echo up; exec sleep 60")
    jobs.saying(name, "up")
    client = house.client("sagemaker", config=Config(retries={"max_attempts": 0}))
    asked, heard = [], []
    client.meta.events.register("before-send.sagemaker", lambda **_: asked.append("look"))

    def wait():
        try:
            client.get_waiter("training_job_completed_or_stopped").wait(TrainingJobName=name, WaiterConfig={"Delay": 0})
        except Exception as error:
            heard.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    # The first look has been answered, so the second one is held.
    eventually(lambda: len(asked) == 2)
    house.stop()
    waiting.join()
    assert len(asked) == 2 and isinstance(heard[0], HTTPClientError), heard
    house.start()
    jobs.connect()
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
