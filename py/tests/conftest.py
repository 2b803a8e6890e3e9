"""Which tests wait for `cargo xtask test --all` or `soak`: those that start many processes and
repeat on more ranks what others show on two, and most of torch's own suite.
"""

import os

import pytest

#: Parts of their names.
LONG = (
    "test_elastic.py::test_scripts_of_torchruns",
    "test_horovod_elastic.py::test_hosts_come_and_go",
    "test_named.py::test_collectives_give_what_they_say[2-tcp",
    "test_named.py::test_collectives_give_what_they_say[3-auto",
    "test_smp.py::test_on_four_ranks",
    "test_torch_sagemaker.py::test_four_ranks",
)


#: Of torch's own suite, which takes 8 minutes on two cores, each test of this number runs always.
EVERY = 6


def pytest_collection_modifyitems(items):
    """Skips them."""
    if "SHOAL_TEST_ALL" in os.environ:
        return
    for item in items:
        three_ranks = "test_horovod.py" in item.nodeid and item.nodeid.endswith("-3]")
        if three_ranks or any(part in item.nodeid for part in LONG):
            item.add_marker(pytest.mark.skip(reason="needs `cargo xtask test --all`: it starts many processes"))
    suite = [item for item in items if "test_torch_suite.py::test_suite[" in item.nodeid]
    for number, item in enumerate(suite):
        if number % EVERY:
            item.add_marker(
                pytest.mark.skip(reason="needs `cargo xtask test --all`: each sixth of torch's own suite runs always")
            )
