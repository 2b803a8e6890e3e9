"""Fixtures: one server for all tests that leave it as it was, others for those that do not; and
the report for `cargo xtask test`.
"""

import contextlib
import json
import os
import pathlib
import shutil
import tempfile

import k8s_cluster
import pytest
import slurm_cluster
from house import SHOAL, House
from jobs import Jobs

# `nobody`: owns nothing, may do nothing.
ORDINARY_USER = 65534


def _clusters():
    """Starts clusters of schedulers: `slurm_cluster` or `k8s_cluster`, if this machine can."""
    with contextlib.ExitStack() as ends:

        def start(kind, **options):
            if problem := kind.missing():
                pytest.skip(problem)
            # Not below pytest's directory, which is closed to other users: their jobs read slurm.conf.
            root = pathlib.Path(tempfile.mkdtemp(prefix="shoal-cluster-"))
            ends.callback(shutil.rmtree, root, ignore_errors=True)
            cluster = kind.Cluster(root, **options)
            ends.callback(cluster.down)
            return cluster.up()

        yield start


start_cluster = pytest.fixture(_clusters, scope="module")
_start_for_all = pytest.fixture(_clusters, scope="session", name="start_for_all")


@pytest.fixture(scope="session")
def target(start_for_all):
    """The settings of the compute target that runs the jobs of tests: SHOAL_TEST_TARGET, or this
    machine.
    """
    match os.environ.get("SHOAL_TEST_TARGET", "local"):
        case "local":
            return ""
        case "slurm":
            return start_for_all(slurm_cluster).settings()
        case "kubernetes":
            return start_for_all(k8s_cluster).settings(SHOAL)
        case other:
            pytest.fail(f"SHOAL_TEST_TARGET={other}: there are local, slurm and kubernetes")


#: Of keys that test_quotas.py alone has; all others have no limits.
QUOTAS = """
[quota."user:quin"]
jobs = 1
instances = 2
max_priority = 3
[quota."user:rick"]
requests_per_s = 2
[quota."user:sam"]
stored = "64KiB"
logs = "1GiB"
[quota."tag:team=narrow"]
instances = 1
[quota."tag:team=chatty"]
logs = "1KiB"
stored = "1GiB"
"""


@pytest.fixture(scope="session")
def house(target):
    house = House(settings=target + QUOTAS)
    yield house
    house.close()


@pytest.fixture(scope="session")
def jobs(house):
    return Jobs(house)


@pytest.fixture(scope="session")
def limited(house):
    """Memory is limited where control groups can be made."""
    checks = {check["check"]: check for check in json.loads(house.shoal("doctor", "--json", check=False).stdout)}
    if checks["limits"]["state"] != "ok":
        pytest.skip(f"needs root or control groups of one's own: {checks['limits']['found']}")


@pytest.fixture(scope="session")
def package():
    """The wheel of the Python package beside the program."""
    if not list((SHOAL.parent.parent / "wheels").glob("shoal-*.whl")):
        pytest.skip("needs the wheel of the Python package: cargo xtask package")


def _houses():
    """Makes servers that a test may treat badly."""
    made = []

    def make(*flags, ordinary=False, **options):
        if ordinary and os.getuid() == 0:
            if not shutil.which("setpriv"):
                pytest.skip("needs setpriv")
            options["user"] = ORDINARY_USER
        made.append(House(*flags, **options))
        return made[-1]

    yield make
    for house in made:
        house.close()


new_house = pytest.fixture(_houses)
make_house = pytest.fixture(_houses, scope="module")


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: needs the machine for itself; other files run several at a time")
    config.addinivalue_line("markers", "targets: runs on Slurm and on Kubernetes, too")


_figures = []


@pytest.fixture(scope="session")
def figures():
    """Takes lines about what was measured, for the end of the output; no test depends on them."""
    return _figures.append


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Of tests that run side by side, those of one worker have ended."""
    _figures.extend(getattr(node, "workeroutput", {}).get("figures", []))


def pytest_terminal_summary(terminalreporter):
    for line in _figures:
        terminalreporter.write_line(line)


_report = []

#: Characters of a failure's reason in the report.
MAX_REASON = 600


def pytest_runtest_logreport(report):
    name = report.nodeid
    if report.when == "call" or report.outcome != "passed":
        entry = {"name": name, "outcome": report.outcome}
        if report.outcome == "skipped":
            entry["reason"] = report.longrepr[2].removeprefix("Skipped: ")
        elif crash := getattr(report.longrepr, "reprcrash", None):
            entry["reason"] = crash.message[:MAX_REASON]
        # A test that passed and then could not be cleaned up has failed.
        _report[:] = [other for other in _report if other["name"] != name] + [entry]


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        # A worker of several: the process that started them has all reports.
        session.config.workeroutput["figures"] = _figures
    elif path := os.environ.get("SHOAL_TEST_REPORT"):
        with open(path, "w") as file:
            json.dump(_report, file, indent=1)
