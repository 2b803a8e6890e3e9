"""The SageMaker SDK in this process, in the environment that `shoal exec` gives, with one server for all tests of a run."""

import os
import sys

import pytest


@pytest.fixture(scope="session", autouse=True)
def environment(house):
    for name, value in house.variables_for_clients().items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    # What is on PYTHONPATH when an interpreter starts: the botocore plugin.
    sys.path[:0] = os.environ["PYTHONPATH"].split(":")
