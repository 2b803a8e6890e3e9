"""A real server of the real binary, on a free port, in a directory of its own."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import boto3

SHOAL = pathlib.Path(os.environ.get("SHOAL_BIN", pathlib.Path(__file__).parents[2] / "target/debug/shoal"))

# An instance small enough to run out of memory at once; the name must be one that the API's model
# knows. And two without the GPUs that they have at AWS: SDK v2 refuses some distributions on any
# others.
INSTANCE_TYPES = "ml.m4.xlarge 1 0.1 0 - 0.1\nml.g5.xlarge 2 4 0 - 1\nml.p3.16xlarge 2 4 0 - 1\n"

BUCKET = "tests"


class House:
    """A server, its data directory, and clients of it."""

    def __init__(
        self, *flags, user=None, variables=None, data=None, address="127.0.0.1", port=0, open_files=None, settings=""
    ):
        # Short times, so that jobs of a test that failed do not stay for long.
        defaults = {"--grace-s": "5", "--lease-s": "30"}
        self.flags = [
            *flags,
            *(word for name, value in defaults.items() if name not in flags for word in (name, value)),
        ]
        self.user = user
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="shoal-test-"))
        self.data = data or self.root / "data"
        self.data.mkdir(exist_ok=True)
        self.address, self.port = address, port
        (self.data / "instance-types.txt").write_text(INSTANCE_TYPES)
        if settings:
            (self.data / "shoal.toml").write_text(settings)
        self.binary = SHOAL
        self.prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        if open_files:
            self.prefix = ["prlimit", f"--nofile={open_files}:{open_files}", *self.prefix]
        # What this machine's container engine has is no test's business but theirs who ask for it.
        self.variables = {**os.environ, "SHOAL_ENGINE": "none", **(variables or {})}
        if port:
            # A server on a full disk cannot say where it is, and clients look where it was
            # configured to be.
            self.variables["SHOAL_LISTEN"] = f"127.0.0.1:{port}"
        if user:
            self._give_to(user)
        self.log = self.root / "server.log"
        self.process = None
        self.start()

    def _give_to(self, user):
        """Another user reaches neither root's home nor root's library: copies, owned by them."""
        self.binary = self.root / "shoal"
        shutil.copy2(SHOAL, self.binary)
        library = pathlib.Path(self.variables.get("HOME", "/")) / ".cache/shoal"
        (self.root / "home/.cache").mkdir(parents=True)
        for directory in library.glob("xgboost-*"):
            shutil.copytree(directory, self.root / "home/.cache/shoal" / directory.name)
        self.variables["HOME"] = str(self.root / "home")
        for path in [self.root, *self.root.rglob("*")]:
            os.chown(path, user, user)

    def start(self):
        (self.data / "address").unlink(missing_ok=True)
        command = [
            *self.prefix,
            str(self.binary),
            "serve",
            "--data-dir",
            str(self.data),
            "--listen",
            f"{self.address}:{self.port}",
            *self.flags,
        ]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self.variables, cwd=self.root)
        self.pid = self.process.pid
        eventually(lambda: self._is_up())

    def _is_up(self):
        assert self.process.poll() is None, self.log.read_text()
        if self.port:
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", self.port)) == 0
        return (self.data / "address").exists()

    def stop(self, how=signal.SIGTERM):
        """Ends the server, which must not have ended before by itself; an orderly end must be
        one.
        """
        if self.process:
            assert self.process.poll() is None, f"the server ended with {self.process.poll()}: {self.log.read_text()}"
            self.process.send_signal(how)
            code, self.process = self.process.wait(120), None
            assert code == (0 if how == signal.SIGTERM else -how), self.log.read_text()

    def close(self):
        try:
            self.stop()
        finally:
            shutil.rmtree(self.root, ignore_errors=True)

    def shoal(self, *arguments, check=True, **options):
        """Runs a command of ours against this server."""
        options = {"text": True, "capture_output": True, "env": self.environment, "cwd": self.root, **options}
        return subprocess.run(self.command(*arguments), check=check, **options)

    def has_environment(self, name):
        """Whether the cache has it whole, and not only what jobs required on top; some are
        gigabytes, and no test makes those.
        """
        rows = self.shoal("env-cache", "list").stdout.splitlines()
        return any(re.match(f"{name}-[0-9a-f]{{16}} ", row) and row.endswith(("ready", "in use")) for row in rows)

    def command(self, *arguments):
        """A command line of ours; in `environment` it is about this server."""
        return [*self.prefix, str(self.binary), *arguments]

    @property
    def environment(self):
        return {**self.variables, "SHOAL_DATA_DIR": str(self.data)}

    def variables_for_clients(self):
        return json.loads(self.shoal("env", "--json").stdout)

    def client(self, service, **options):
        variables = self.variables_for_clients()
        return boto3.client(
            service,
            endpoint_url=variables["AWS_ENDPOINT_URL"],
            aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
            region_name=variables["AWS_REGION"],
            **options,
        )

    @property
    def id(self):
        """Names everything of this server on the machine."""
        return (self.data / "id").read_text().strip()


def free_port():
    """For a server whose clients are to find it again after its restart."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def eventually(condition, seconds=120):
    """Waits for a condition, and says what it last was when it does not come. The limit is for a
    busy machine: it costs time only when a test fails.
    """
    end = time.monotonic() + seconds
    while not (last := condition()):
        assert time.monotonic() < end, f"still {last!r} after {seconds} s"
        time.sleep(0.02)
    return last
