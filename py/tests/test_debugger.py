"""`smdebug`: files of a training's tensors, the hooks, and the hook that attaches itself."""

import os
import subprocess
from pathlib import Path

import pytest
import test_tensorflow
import torch_ranks

FILES = [
    "files_of_aws_are_read",
    "bytes_are_those_of_aws",
    "torn_files_are_errors",
    "steps_are_those_of_the_configuration",
    "trials_answer",
    "places_that_cannot_be_read_are_explained",
    "trials_follow_a_training",
    "rules_are_invoked",
    "own_rules_have_verdicts",
    "tensorboard_files_are_complete",
]
TORCH = [
    "default_is_losses_every_500_steps",
    "collections_are_saved",
    "patterns_and_reductions",
    "modes_have_steps_of_their_own",
    "tensors_of_the_script",
    "types_of_torch",
    "configurations_are_followed",
    "configurations_of_one_collection_are_joined",
    "stored_models_have_no_hook",
    "errors_end_the_hook_only",
    "a_directory_has_one_run",
    "steps_go_on_behind_a_checkpoint",
    "tensorboard_sees_scalars_and_histograms",
]
AUTOMATIC = [
    "torch_script",
    "torch_compiled",
    "torch_scripts_of_other_kinds",
    "torch_ranks",
    "nothing_without_a_configuration",
]
PROFILER = [
    "parts_are_of_their_step",
    "fast_steps_are_counted_and_slow_ones_are_seen",
    "files_are_complete_and_few",
    "waits_of_backward_passes_are_communication",
    "torch_script",
]


def _python(variable: str, environment: str, module: str) -> str | None:
    """An interpreter that has the module: that of the variable, or of an environment that is there."""
    cache = Path(os.environ.get("SHOAL_CACHE") or Path.home() / ".cache/shoal")
    for python in [os.environ.get(variable), *map(str, sorted(cache.glob(f"environments/{environment}/bin/python")))]:
        find = f"import importlib.util as it, sys; sys.exit(it.find_spec({module!r}) is None)"
        if python and subprocess.run([python, "-c", find], capture_output=True).returncode == 0:
            return python
    return None


def _processes(python):
    class Processes(torch_ranks.Ranks):
        """A process with this interpreter."""

        PROGRAM = "debugger_rank.py"

        def start(self, rank: int, size: int, port: int, **more: str) -> subprocess.Popen:
            return torch_ranks.spawn(python, str(torch_ranks.HERE / self.PROGRAM), **more)

    with torch_ranks.kept(Processes) as processes:
        yield processes


@pytest.fixture(scope="module")
def torch():
    yield from _processes(torch_ranks.PYTHON)


@torch_ranks.needs_torch()
@pytest.mark.parametrize("name", FILES)
def test_files(torch, name):
    torch(1).check("debugger_files", name)


@torch_ranks.needs_torch()
@pytest.mark.parametrize("name", PROFILER)
def test_profiler(torch, name):
    torch(1).check("debugger_profiler", name)


@torch_ranks.needs_torch()
@pytest.mark.parametrize("name", TORCH)
def test_torch(torch, name):
    torch(1).check("debugger_torch", name)


@torch_ranks.needs_torch()
@pytest.mark.parametrize("name", AUTOMATIC)
def test_automatic(torch, name):
    torch(1).check("debugger_automatic", name)


XGBOOST = _python("SHOAL_XGBOOST_PYTHON", "xgboost-" + "?" * 16, "xgboost")


@pytest.mark.skipif(XGBOOST is None, reason="needs XGBoost's environment: shoal env-cache prepare xgboost")
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("debugger_automatic", "xgboost_script"),
        ("debugger_automatic", "sklearn_script"),
        ("debugger_profiler", "xgboost_script"),
    ],
)
def test_xgboost(module, name):
    for processes in _processes(XGBOOST):
        processes(1).check(module, name)


@pytest.mark.skipif(test_tensorflow.PYTHON is None, reason=test_tensorflow.WITHOUT)
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("debugger_automatic", "keras_script"),
        ("debugger_automatic", "keras_tape"),
        ("debugger_profiler", "keras_script"),
    ],
)
def test_keras(module, name):
    for processes in _processes(test_tensorflow.PYTHON):
        processes(1).check(module, name)


#: An interpreter with AWS's smdebug and TensorBoard; `cargo xtask test` makes it of debugger_oracles.lock.
ORACLES = os.environ.get("SHOAL_DEBUGGER_ORACLES")
needs_oracles = pytest.mark.skipif(
    ORACLES is None, reason="needs an interpreter with debugger_oracles.lock in SHOAL_DEBUGGER_ORACLES"
)


@needs_oracles
def test_tensorboard_reads_summaries(tmp_path):
    run(ORACLES, "debugger_tensorboard.py", str(tmp_path))


@needs_oracles
@torch_ranks.needs_torch()
def test_aws_reads_our_files(tmp_path):
    write = f"import debugger_torch; debugger_torch.write_for_aws({str(tmp_path / 'run')!r})"
    expected = run(torch_ranks.PYTHON, "-c", write).splitlines()[-1]
    (tmp_path / "expected.json").write_text(expected)
    run(ORACLES, "debugger_aws.py", str(tmp_path), PYTHONPATH="")


def run(python, *arguments, **more) -> str:
    """What a program in this interpreter prints."""
    process = torch_ranks.spawn(
        python, *(str(torch_ranks.HERE / one) if one.endswith(".py") else one for one in arguments), **more
    )
    text = process.communicate(timeout=240)[0]
    assert process.returncode == 0, torch_ranks.said(process)
    return text
