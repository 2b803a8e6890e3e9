"""The SageMaker SDK in this process, in the environment that `shoal exec` gives, with one server
for all tests of a run.
"""

import os
import sys
import threading
import time

import pytest
from botocore.client import BaseClient


@pytest.fixture(scope="session", autouse=True)
def environment(house):
    for name, value in house.variables_for_clients().items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    # What is on PYTHONPATH when an interpreter starts: the botocore plugin.
    sys.path[:0] = os.environ["PYTHONPATH"].split(":")


class Turns:
    """What this process asks about a job, and the pauses that it asks for between."""

    def __init__(self, monkeypatch):
        self.done = []
        sleep, call = time.sleep, BaseClient._make_api_call

        def slept(seconds):
            # The thread's own: a progress bar redraws in another.
            if threading.current_thread() is threading.main_thread():
                self.done.append(seconds)
            sleep(seconds)

        def called(client, operation, parameters):
            answer = call(client, operation, parameters)
            if operation in ("DescribeTrainingJob", "DescribeHyperParameterTuningJob"):
                self.done.append(answer.get("TrainingJobStatus") or answer["HyperParameterTuningJobStatus"])
            return answer

        monkeypatch.setattr(time, "sleep", slept)
        monkeypatch.setattr(BaseClient, "_make_api_call", called)

    def check(self):
        """Whoever waited has seen the job run, never paused for longer than half a second
        between two looks, nor after the last one.
        """
        assert self.done.count("InProgress") > 1, self.done
        pauses = [0.0]
        for turn in self.done:
            if isinstance(turn, str):
                pauses.append(0.0)
            else:
                pauses[-1] += turn
        assert max(pauses) <= 0.5, self.done


@pytest.fixture
def turns(monkeypatch):
    return Turns(monkeypatch)
