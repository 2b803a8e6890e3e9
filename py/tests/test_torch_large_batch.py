"""Two ranks train as four: equal weights, loss scales and rates. Local training, LARS and LAMB
by their formulas.
"""

import json

import pytest
import torch_ranks
from torch_ranks import Ranks

pytestmark = torch_ranks.needs_torch()

EQUAL = ["trains_as_many", "clips_and_schedules", "scales_losses", "batch_statistics", "script"]
OTHERS = ["samplers", "hooks_and_no_sync", "refusals", "plain_scripts"]

MORE = [
    *(("torch_local_training", it) for it in ("local_sgd", "diloco", "wires", "streaming", "local_refusals")),
    *(("torch_optim", it) for it in ("lars", "lamb", "schedules")),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Where four ranks have written what they trained."""
    directory = tmp_path_factory.mktemp("large_batch")
    four = Ranks(4, LARGE_BATCH=str(directory))
    for name in EQUAL:
        four.check("torch_large_batch", name)
    four.end()
    return directory


@pytest.fixture(scope="module")
def ranks(trained):
    with torch_ranks.kept(lambda size: Ranks(size, LARGE_BATCH=str(trained))) as ranks:
        yield ranks


@pytest.mark.parametrize("name", [it for it in EQUAL if it != "script"] + OTHERS)
def test_two_ranks_train_as_four(ranks, name):
    ranks().check("torch_large_batch", name)


@pytest.mark.parametrize(("module", "name"), MORE)
def test_formulas(ranks, module, name):
    ranks().check(module, name)


def test_unchanged_scripts_are_simulated(trained):
    pair = Ranks(2, LARGE_BATCH=str(trained), SHOAL_SIMULATE_INSTANCES="4")
    pair.check("torch_large_batch", "script")
    pair.end()
    assert "2 ranks train as 4 workers" in torch_ranks.said(pair.processes[0])


def test_a_process_that_trains_alone_is_simulated():
    program = str(torch_ranks.HERE / "lone_large_batch.py")
    settings = {"SHOAL_SIMULATE_BATCH_STATISTICS": "worker_0"}, {"SHOAL_SIMULATE_RATE": "by_size"}
    results = []
    for more in settings:
        process = torch_ranks.spawn(torch_ranks.PYTHON, program, SHOAL_SIMULATE_INSTANCES="4", **more)
        try:
            output, _ = process.communicate(timeout=torch_ranks.PATIENCE_S)
            assert process.returncode == 0, torch_ranks.said(process)
        finally:
            process.kill()
            process.wait()
        assert "1 rank trains as 4 workers" in torch_ranks.said(process)
        results += json.loads(output)
    # Running statistics are not used in training, so the weights depend on the rates alone.
    half = len(results) // 2
    for one, other in zip(results[:half], results[half:], strict=True):
        assert one == pytest.approx(other, abs=1e-9)


def test_programs_for_horovod_are_simulated(trained):
    port = torch_ranks.free_port()
    # Both ranks are on one machine, so that two instances are four ranks.
    more = {"LARGE_BATCH": str(trained), "SHOAL_SIMULATE_INSTANCES": "2", "SHOAL_SIMULATE_RATE": "by_size"}
    program = str(torch_ranks.HERE / "horovod_large_batch.py")
    pair = [torch_ranks.start(rank, 2, port, program, **more) for rank in range(2)]
    try:
        for it in pair:
            assert it.wait(torch_ranks.PATIENCE_S) == 0, torch_ranks.said(it)
    finally:
        for it in pair:
            it.kill()
            it.wait()
    assert "2 ranks train as 4 workers" in torch_ranks.said(pair[0])
