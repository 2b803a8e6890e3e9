"""torch's own suite for process groups: what Gloo passes, this backend passes."""

import pytest
import torch_ranks
import torch_suite

pytestmark = torch_ranks.needs_torch()


@pytest.fixture(scope="module")
def host():
    """The suite over this backend."""
    it = torch_suite.Host("shoal")
    yield it
    it.end()


def test_the_list_is_of_this_torch(host):
    missing = set(torch_suite.listed()) - set(host.tests)
    assert not missing, f"torch {host.torch} has not {sorted(missing)}: renew the list with cargo xtask torch-suite"


@pytest.mark.parametrize("name", torch_suite.listed())
def test_suite(host, name):
    said = host.run(name)
    assert said["outcome"] == "passed", said["why"]
