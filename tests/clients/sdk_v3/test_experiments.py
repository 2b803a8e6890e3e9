"""`sagemaker.core.experiments` of SDK v3, unmodified."""

import importlib

import pytest
from experiments_sdk import a_run_from_beginning_to_analysis, scores  # noqa: F401

experiments = importlib.import_module("sagemaker.core.experiments.run")


@pytest.fixture(scope="module")
def session(environment):
    from sagemaker.core.helper.session_helper import Session

    return Session()


def test_a_run_from_beginning_to_analysis(session, scores, tmp_path):  # noqa: F811
    a_run_from_beginning_to_analysis(experiments, session, tmp_path, "Titanic-v3")
