#!/usr/bin/env python3
"""The GPU checks of the folder that this lies in, as `cargo xtask gpu` made it:
`./run [OPTIONS OF PYTEST]`. It needs no Rust: an interpreter with pytest, and with PyTorch for
CUDA unless $SHOAL_TORCH_PYTHON names another that has that. Closes with a line of counts.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FACTS = """
import torch
print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, NCCL", ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else "unknown")
for number in range(torch.cuda.device_count()):
    print(f"GPU {number}: {torch.cuda.get_device_name(number)}")
if not torch.cuda.is_available():
    print("PyTorch sees no GPU")
"""
# PyTorch's wheel brings NCCL, which the system's linker does not find.
LIBRARY = "import nvidia.nccl, pathlib; print(*[it for at in nvidia.nccl.__path__ for it in pathlib.Path(at).glob('lib/libnccl.so.2')][:1])"


def says(*command: str) -> str:
    """What a program prints; nothing if it fails or is not there."""
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def shown(command: list[str], variables: dict[str, str]) -> tuple[int, list[str]]:
    """Runs a program; its exit code and its lines, which are printed as they come."""
    process = subprocess.Popen(command, cwd=HERE, env=variables, stdout=subprocess.PIPE, text=True, errors="replace")
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line.rstrip("\n"))
    return process.wait(), lines


def of_rust(lines: list[str]) -> tuple[int, int, list[str]]:
    """Passed, failed and why skipped, of libtest's lines: a test that skips itself says so and
    has passed.
    """
    why = [line.removeprefix("skipped: ") for line in lines if line.startswith("skipped: ")]
    closing = next((line for line in reversed(lines) if line.startswith("test result: ")), "")
    passed, failed = (int((re.search(rf"(\d+) {word}", closing) or ["0", "0"])[1]) for word in ("passed", "failed"))
    return passed - len(why), failed, why


def of_pytest(lines: list[str]) -> tuple[int, int, list[str]]:
    """The same of the lines of `pytest -rA`."""
    passed = sum(line.startswith("PASSED ") for line in lines)
    failed = sum(line.startswith(("FAILED ", "ERROR ")) for line in lines)
    skipped = [re.fullmatch(r"SKIPPED \[(\d+)\] [^ ]+: (.*)", line) for line in lines]
    return passed, failed, [it[2] for it in skipped if it for _ in range(int(it[1]))]


def main() -> int:
    """Runs both; whether something failed."""
    torch = os.environ.get("SHOAL_TORCH_PYTHON") or sys.executable
    print(
        says("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
        or "no nvidia-smi here"
    )
    print(says(torch, "-c", FACTS) or f"{torch} has no PyTorch")
    variables = {**os.environ, "SHOAL_TORCH_PYTHON": torch, "PYTHONPATH": str(HERE / "python")}
    variables.setdefault("SHOAL_COMM_NCCL", says(torch, "-c", LIBRARY) or "libnccl.so.2")
    print(f"NCCL of process groups: {variables['SHOAL_COMM_NCCL']}", flush=True)
    passed, failed, why = 0, 0, []
    pytest = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "tests/test_gpu.py", *sys.argv[1:]]
    for command, count in (([str(HERE / "nccl-conformance"), "--show-output"], of_rust), (pytest, of_pytest)):
        code, lines = shown(command, variables)
        counts = count(lines)
        passed, failed, why = passed + counts[0], failed + counts[1], why + counts[2]
        # It ended in another way than with a summary.
        failed += code != 0 and not counts[1]
    for reason in sorted(set(why)):
        print(f"skipped: {why.count(reason)}: {reason}")
    print(f"{passed} passed, {failed} failed, {len(why)} skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
