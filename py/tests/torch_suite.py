"""torch's own suite for process groups, as test_torch_suite.py runs it.
`cargo xtask torch-suite` runs this, which renews the list of tests that Gloo passes.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch_ranks

HERE = Path(__file__).parent
LIST = HERE / "torch_suite.txt"

#: Tests that Gloo passes and this backend does not, with the reason.
NOT_OURS = {
    "test_ddp_logging_data_cpu": "torch calls each backend that is not its own `custom` there",
    "test_ddp_profiling_torch_profiler": "torch's profiler marks no event as asynchronous that Python begins",
}


def listed() -> list[str]:
    """Names of the tests that Gloo passes, but for `NOT_OURS`."""
    lines = LIST.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#") and line not in NOT_OURS]


class Host:
    """A process that runs tests of torch's suite over one backend."""

    def __init__(self, backend: str):
        # The suite imports expecttest, which PyTorch's environment does not have: this
        # interpreter's is shown to it.
        self._shown = tempfile.TemporaryDirectory()
        (Path(self._shown.name) / "expecttest").symlink_to(Path(importlib.util.find_spec("expecttest").origin).parent)
        environment = torch_ranks.environment()
        environment["PYTHONPATH"] += os.pathsep + self._shown.name
        self._errors = tempfile.TemporaryFile("w+")
        program = [torch_ranks.PYTHON, str(HERE / "torch_suite_host.py"), backend]
        self._process = subprocess.Popen(
            program, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self.torch, self.tests = (lambda first: (first["torch"], first["tests"]))(self._answer())

    def _answer(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"the process that runs torch's suite ended:\n{self._errors.read()}")
        return json.loads(line)

    def run(self, name: str) -> dict:
        """A test's outcome; a test that hangs is ended after a minute."""
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        """Ends it."""
        self._process.stdin.close()
        self._process.wait(torch_ranks.PATIENCE_S)
        self._shown.cleanup()


def renew() -> None:
    """Writes the list anew, by Gloo's outcomes here."""
    host = Host("gloo")
    passed = []
    for name in host.tests:
        outcome = host.run(name)["outcome"]
        print(outcome, name, flush=True)
        if outcome == "passed":
            passed.append(name)
    host.end()
    text = f"# What Gloo passes of torch {host.torch}'s distributed_test on 4 ranks. `cargo xtask torch-suite` writes it anew.\n"
    LIST.write_text(text + "\n".join(passed) + "\n")


if __name__ == "__main__":
    if torch_ranks.PYTHON is None:
        sys.exit(torch_ranks.WITHOUT)
    renew()
