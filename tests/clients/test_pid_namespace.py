"""A server in a PID namespace of its own, as in a container: what started it is outside, and so
is its process group.
"""

import subprocess

import pytest
from house import House
from jobs import Jobs

CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
# The server is not the first process there, but a child of it in the same group.
SHELL = [*CONTAINER, "sh", "-c", '"$@"; exit', "sh"]


class Contained(House):
    def start(self):
        self.prefix = SHELL
        super().start()

    def stop(self, *_):
        """The end of the first process is the end of all; the signal that ends a server is for
        the shell's child.
        """
        if self.process:
            self.process.kill()
            self.process.wait(120)
            self.process = None


def test_jobs_run_in_a_containers_own_pid_namespace(tmp_path):
    if subprocess.run([*CONTAINER, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("needs root for a PID namespace")
    house = Contained()
    try:
        jobs = Jobs(house)
        name = jobs.command("echo pid $$; echo m > /opt/ml/model/m", instances=2)
        jobs.completed(name)
        assert jobs.artifact(name) == {"m": b"m\n"} and jobs.lines(name)[0].startswith("pid ")
        jobs.failed(jobs.command("exit 3"))
    finally:
        house.close()
