"""SageMaker's data parallel library: both of its interfaces on two ranks that mpirun's variables
alone describe, and what they read of the environment.
"""

import subprocess

import pytest
import torch_ranks

pytest.importorskip("smdistributed.dataparallel")
from smdistributed.dataparallel import environment  # noqa: E402
from smdistributed.dataparallel.exceptions import SMDDPConfigError, SMDDPError  # noqa: E402


@torch_ranks.needs_torch()
def test_scripts_of_both_versions_on_two_ranks():
    variables = {
        name: it
        for name, it in torch_ranks.environment().items()
        if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")
    }
    variables |= {"MASTER_PORT": str(torch_ranks.free_port()), "SECOND_PORT": str(torch_ranks.free_port())}
    processes = []
    for rank in range(2):
        told = {"RANK": rank, "SIZE": 2, "LOCAL_RANK": rank, "LOCAL_SIZE": 2}
        told = {f"OMPI_COMM_WORLD_{name}": str(it) for name, it in told.items()}
        command = [torch_ranks.PYTHON, str(torch_ranks.HERE / "smddp_rank.py")]
        processes.append(
            subprocess.Popen(
                command, env={**variables, **told}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0 and output == "trained\n", errors


def test_what_launchers_tell_is_completed():
    variables = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "algo-1", "MASTER_PORT": "7000"}
    given = dict(variables)
    environment.complete(given)
    assert given == {**variables, "SMDATAPARALLEL_LOCAL_RANK": "1"}
    given = {
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "SM_HOSTS": '["algo-10", "algo-2"]',
    }
    environment.complete(given)
    assert (given["RANK"], given["WORLD_SIZE"], given["LOCAL_RANK"], given["MASTER_ADDR"], given["MASTER_PORT"]) == (
        "3",
        "4",
        "1",
        "algo-2",
        "7777",
    )
    assert environment.local_rank(given) == 1 and environment.is_distributed(given)
    given = {}
    environment.complete(given)
    assert given == {} and not environment.is_distributed(given)
    with pytest.raises(SMDDPConfigError, match="torchrun or mpirun"):
        environment.local_rank(given)
    assert environment.local_rank({"SMDATAPARALLEL_LOCAL_RANK": "2"}) == 2
    assert issubclass(SMDDPConfigError, SMDDPError)
