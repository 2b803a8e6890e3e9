"""docs/pytorch.md, as a reader would follow it."""

import re
import subprocess
from pathlib import Path

import torch_ranks

pytestmark = torch_ranks.needs_torch()

PAGE = Path(__file__).parents[2] / "docs/pytorch.md"


def test_the_programs_of_the_guide_run(tmp_path):
    page = PAGE.read_text()
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (command,) = re.findall(r"```sh\n(.*?)\n```", page, re.DOTALL)
    assert len(programs) == 3
    torchrun, *arguments = command.split()
    assert torchrun == "torchrun"
    outputs = []
    for program in programs:
        (tmp_path / "train.py").write_text(program)
        run = [
            torch_ranks.PYTHON,
            "-m",
            "torch.distributed.run",
            "--master-port",
            str(torch_ranks.free_port()),
            *arguments,
        ]
        done = subprocess.run(
            run,
            cwd=tmp_path,
            env=torch_ranks.environment(),
            capture_output=True,
            text=True,
            timeout=torch_ranks.PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert float(re.search(r"loss ([0-9.]+)", outputs[0])[1]) < 5
    assert "sum of ranks 1" in outputs[1] and "shared memory, 2 ranks" in outputs[1]
    assert float(re.search(r"32 of 64 rows, loss ([0-9.]+)", outputs[2])[1]) < 8
