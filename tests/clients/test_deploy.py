"""deploy/: the plain manifest and the Helm chart are the same, and fit the APIs of newer clusters than
the one that the tests have; test_kubernetes.py applies them to that one. The units of systemd are
ones, and a server that is run as they say is replaced while a job runs.
"""

import configparser
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess

import k8s_cluster
import pytest
import traces
from house import SHOAL, eventually
from jobs import Jobs

ROOT = pathlib.Path(__file__).parents[2]
CHECK = ROOT / "deploy/check.py"
INSTALLED = "/usr/local/bin/shoal"


@pytest.fixture(scope="module")
def found():
    if problem := k8s_cluster.missing():
        pytest.skip(problem)
    python = k8s_cluster.built() / "tools/bin/python"
    done = subprocess.run([python, "-B", CHECK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_plain_manifest_is_the_chart_with_its_defaults(found):
    assert found["is_plain_the_chart"], "deploy/render.py writes deploy/shoal.yaml"
    assert found["lint"] == []


def test_manifests_fit_newer_clusters(found):
    assert len(found["versions"]) > 10 and found["problems"] == [], found["problems"]
    # One that does not is found, by each version.
    assert len(found["mistake"]) == len(found["versions"])
    assert "'imagePullpolicy' was unexpected" in found["mistake"][0]


def test_the_chart_does_what_its_values_say(found):
    by_kind = {it["kind"]: it for it in found["rendered"]}
    assert "ClusterRole" not in by_kind
    secrets = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["registry"], "verbs": ["get"]}
    assert by_kind["Role"]["rules"][-1] == secrets
    settings = by_kind["ConfigMap"]["data"]["shoal.toml"]
    for line in ('region = "eu-central-1"', 'image = "registry.example.org/team/shoal:1"', 'queue = "team"'):
        assert line in settings, settings
    claim = by_kind["StatefulSet"]["spec"]["volumeClaimTemplates"][0]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast", "1Ti")
    pod = by_kind["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}] and pod["nodeSelector"] == {"disk": "ssd"}
    assert "additional properties 'sise' not allowed" in found["refusal"]


class Unit:
    """A unit of systemd: its file and its options, each given once."""

    def __init__(self, path):
        self.path, self.name = path, path.name
        parser = configparser.RawConfigParser(delimiters="=", comment_prefixes="#")
        parser.optionxform = str
        parser.read_string(path.read_text())
        self.sections = {section: dict(parser[section]) for section in parser.sections()}
        self.unit, self.service = self.sections["Unit"], self.sections["Service"]
        self.program, *self.words = shlex.split(self.service["ExecStart"])

    def data_dir(self):
        return self.words[self.words.index("--data-dir") + 1]

    def command(self, places):
        """Its command line, with other places than those of the file."""
        return [str(SHOAL), *(str(places.get(word, word)) for word in self.words)]


UNITS = {path.name: Unit(path) for path in sorted((ROOT / "deploy/systemd").iterdir())}
SERVER, BACKUP = UNITS["shoal.service"], UNITS["shoal-backup.service"]
# Of systemd 252, which takes unknown names for no error.
OPTIONS = {
    "Unit": "Description After RequiresMountsFor StartLimitIntervalSec",
    "Service": "User ExecStart StateDirectory StateDirectoryMode KillMode Restart RestartSec Delegate TasksMax "
    "LimitNOFILE",
    "Install": "WantedBy",
}
# Known to systemd 254, and left out of account by earlier ones.
NEWER = "DelegateSubgroup"


def test_units_have_options_that_systemd_knows(tmp_path):
    for unit in UNITS.values():
        for section, options in unit.sections.items():
            assert set(options) <= {*OPTIONS[section].split(), NEWER}, unit.name
        # Its program must be there.
        (tmp_path / unit.name).write_text(unit.path.read_text().replace(INSTALLED, str(SHOAL)))
    if shutil.which("systemd-analyze"):
        command = ["systemd-analyze", "verify", "--man=no", *(tmp_path / name for name in UNITS)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        problems = [line for line in done.stderr.splitlines() if NEWER not in line]
        assert (done.returncode, problems) == (0, [])


@pytest.mark.parametrize("name", UNITS)
def test_the_program_has_what_units_call(name):
    unit = UNITS[name]
    assert unit.program == INSTALLED
    pages = subprocess.run([SHOAL, unit.words[0], "--help"], capture_output=True, text=True, check=True).stdout
    flags = [word for word in unit.words if word.startswith("--")]
    assert flags and set(flags) <= set(re.findall(r"^ +(--[a-z-]+)", pages, re.MULTILINE)), pages


def test_units_and_their_description_agree():
    page = (ROOT / "docs/operations.md").read_text()
    for unit in UNITS.values():
        assert f"deploy/systemd/{unit.name}" in page
        assert unit.service["User"] == "shoal" and unit.sections["Install"] == {"WantedBy": "multi-user.target"}
        assert unit.data_dir() == f"/var/lib/{SERVER.service['StateDirectory']}"
        # What they need may come later than five attempts.
        assert unit.unit["StartLimitIntervalSec"] == "0"
    assert "useradd --system --create-home" in page and f"install target/release/shoal {INSTALLED}" in page
    assert SERVER.service["StateDirectoryMode"] == "0700", "it has the owner's keys"
    assert int(SERVER.service["LimitNOFILE"]) // 2 - 128 >= 16_384, "all connections that the page promises"
    assert (SERVER.service["Delegate"], bool(SERVER.service[NEWER])) == ("yes", True)
    assert BACKUP.words[1] == BACKUP.unit["RequiresMountsFor"] and BACKUP.unit["After"] == SERVER.name


def stopped_by_systemd(house, mode):
    """Ends what systemd ends of a service whose KillMode is this."""
    others = set(traces.processes(house)) if mode != "process" else set()
    house.stop()
    for pid in others:
        os.kill(pid, signal.SIGKILL)


def test_the_program_is_replaced_while_a_job_runs(new_house):
    house = new_house()
    house.stop()
    house.binary = house.root / "shoal"
    shutil.copy2(SHOAL, house.binary)
    house.start()
    jobs = Jobs(house)
    name = jobs.command(
        "echo ready; while ! [ -e /tmp/go ]; do sleep 0.1; done; echo gone on; echo m > $SM_MODEL_DIR/m"
    )
    jobs.saying(name, "ready")
    agents = traces.agents(house)
    stopped_by_systemd(house, SERVER.service["KillMode"])
    # As `install` does; the agent's program cannot be written.
    with pytest.raises(OSError, match="Text file busy"):
        shutil.copyfile(SHOAL, house.binary)
    house.binary.unlink()
    shutil.copy2(SHOAL, house.binary)
    house.start()
    jobs.connect()
    assert traces.agents(house) == agents != {}, "it is the same agent"
    program = os.readlink(f"/proc/{agents[1]}/exe")
    assert program == f"{house.binary} (deleted)"
    jobs.completed(jobs.command("true"))
    # Once its agent is connected again.
    touch = ["jobs", "exec", name, "--", "/bin/touch", "/tmp/go"]
    eventually(lambda: house.shoal(*touch, check=False).returncode == 0)
    jobs.completed(name)
    assert jobs.lines(name) == ["ready", "gone on"] and jobs.artifact(name) == {"m": b"m\n"}


def test_the_backups_unit_waits_for_a_data_directory_and_copies_it(new_house, tmp_path):
    target, house = tmp_path / "target", new_house()
    early = BACKUP.command({BACKUP.words[1]: target, BACKUP.data_dir(): tmp_path / "none"})
    assert subprocess.run(early, capture_output=True, check=False).returncode == 1
    assert BACKUP.service["Restart"] == "always"
    command = BACKUP.command({BACKUP.words[1]: target, BACKUP.data_dir(): house.data})
    backup = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        listed = ("backup", "list", str(target), "--json")
        eventually(lambda: (done := house.shoal(*listed, check=False)).returncode == 0 and done.stdout.strip())
    finally:
        backup.terminate()
        said, _ = backup.communicate(timeout=60)
    assert backup.returncode == 0, said
