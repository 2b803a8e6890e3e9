"""Collectives by name between processes (shoal.named)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch_ranks import environment, free_port

import shoal.named

RANK = Path(__file__).parent / "named_rank.py"


def run(size: int, *what: str, may_die: bool = False, **more: str) -> list[dict]:
    """What each rank said, one dictionary each; a key that comes several times has a list."""
    common = {
        **environment(),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(size),
        **more,
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, str(RANK), *what],
            env={**common, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        outputs = [rank.communicate(timeout=60) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert may_die or [it.returncode for it in ranks] == [0] * size, [it[1][-3000:] for it in outputs]
    all_said = []
    for output, errors in outputs:
        said: dict = {"stderr": errors}
        for line in output.splitlines():
            for key, value in json.loads(line).items():
                said[key] = (
                    value if key not in said else [*(said[key] if isinstance(said[key], list) else [said[key]]), value]
                )
        all_said.append(said)
    return all_said


@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize("size", [2, 3])
def test_collectives_give_what_they_say(size, transport):
    for rank, said in enumerate(run(size, "collectives", SHOAL_COMM_TRANSPORT=transport)):
        assert said["average"] == [size + 1.0, 4.0]
        assert said["many"]
        assert said["group"] == [size, 2.0 * size, 3 * size, -7 * size]
        assert said["gathered"] == [float(it) for it in range(size) for _ in range(it + 1)]
        assert said["sent"] == 1.0
        assert (
            said["exchanged"] == [float(it) for it in range(size) for _ in range(rank + 1)]
            and said["received"] == [rank + 1] * size
        )
        begin = 0 if rank == 0 else 2 * rank + 1
        assert said["scattered"] == [float(it) for it in range(begin, 2 * rank + 3)]
        if size == 2:
            assert said["adasum"] == [1.0, 1.0]
        else:
            assert said["adasum"]["kind"] == "ConfigError" and "power of two" in said["adasum"]["text"]
        assert said["place"] == [rank, size, 0, 1, True]


def test_mistakes_are_told_to_all_and_others_go_on():
    said = run(2, "mistakes")
    for it in said:
        assert it["shape"]["kind"] == "Mismatch" and it["shape"]["tensors"] == ["s"]
        assert "rank 0: allreduce (sum) of f32 [1, 2]; rank 1: allreduce (sum) of f32 [2]" in it["shape"]["text"]
        assert (
            it["kind"]["kind"] == "Mismatch"
            and "rank 0: allgather" in it["kind"]["text"]
            and "rank 1: allreduce" in it["kind"]["text"]
        )
        assert it["twice"]["kind"] == "DuplicateName" and "same name" in it["twice"]["text"]
        assert it["kinds"] == ["ConfigError", "ConfigError"]
        assert it["fine"]


def test_a_stall_is_told_with_tensor_and_rank_unless_the_check_is_disabled():
    first, late = run(2, "stalled", HOROVOD_STALL_CHECK_TIME_SECONDS="1", HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="20")
    assert (
        "Missing ranks:\n  late: rank 1\n" in first["stderr"]
        and "Missing ranks" not in late["stderr"]
        and first["sum"] == 2.0
    )
    disabled = {
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "1",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "1",
    }
    for it in run(2, "stalled", **disabled):
        assert it["sum"] == 2.0 and "Missing ranks" not in it["stderr"]


def test_sets_operations_of_the_callers_joins_and_the_timeline(tmp_path):
    said = run(3, "others", str(tmp_path / "timeline.json"))
    orders = {tuple(it["seen"]) for it in said}
    assert len(orders) == 1 and len(said[0]["seen"]) == 3
    for rank, it in enumerate(said):
        assert it["sets"] == [[0, [0, 1, 2]], [1, [0, 2]]] and it["sum"] == (1.0 if rank == 1 else 2.0)
        assert it["raised"] is True and it["last"] == 2
        steps = it["step"] if isinstance(it["step"], list) else [it["step"]]
        assert steps == [3.0, 2.0, 1.0][: rank + 1]
        assert it["idle"] < 0.02
    events = json.loads((tmp_path / "timeline.json").read_text())
    text = json.dumps(events)
    for part in (
        "start_time_since_epoch_in_micros",
        "allreduce.traced",
        "NEGOTIATE_ALLREDUCE",
        "MEMCPY_IN_FUSION_BUFFER",
        "SHOAL_ALLREDUCE",
        "CYCLE_START",
    ):
        assert part in text, part
    begun = sum(it["ph"] == "B" for it in events)
    assert begun > 0 and begun == sum(it["ph"] == "E" for it in events)


def test_engines_start_again_and_a_rank_that_died_is_named():
    said = run(2, "again", may_die=True)
    assert said[0]["sum"] == [2.0, 2.0]
    assert (
        said[0]["lost"]["kind"] == "PeerDied"
        and said[0]["lost"]["ranks"] == [1]
        and said[0]["lost"]["tensors"] == ["lost"]
    )
    assert '"lost"' in said[0]["lost"]["text"] and said[0]["later"] == "PeerDied"


def test_one_rank_needs_no_others(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "SM_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    engine = shoal.named.start()
    assert (engine.rank, engine.size, engine.local_size, engine.cross_size) == (0, 1, 1, 1)
    engine.submit("barrier", [], wait=True)
    engine.shutdown()
    with pytest.raises(shoal.named.ShutDown):
        engine.submit("barrier", [])


def test_the_place_is_read_from_launchers():
    place = shoal.named.place
    horovod = {
        "HOROVOD_RANK": "3",
        "HOROVOD_SIZE": "4",
        "HOROVOD_LOCAL_RANK": "1",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "a",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "7",
    }
    assert place({**horovod, "RANK": "0", "WORLD_SIZE": "9"}) == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "7",
    }
    mpi = {
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    }
    found = place({**mpi, "PMIX_NAMESPACE": "prte-1@1"})
    assert found["SHOAL_COMM_DIRECTORY"] == f"/tmp/shoal-mpi-{os.getuid()}-prte-1-1"
    assert (found["RANK"], found["WORLD_SIZE"], found["LOCAL_RANK"], found["LOCAL_WORLD_SIZE"]) == ("1", "2", "1", "2")
    assert "SHOAL_COMM_DIRECTORY" not in place({**mpi, "MASTER_ADDR": "h", "MASTER_PORT": "1"})
    torchrun = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "7", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    assert place({**torchrun, "LOCAL_WORLD_SIZE": "2"})["SHOAL_COMM_DIRECTORY"].startswith(
        f"/tmp/shoal-torchrun-{os.getuid()}-{os.getppid()}-"
    )
    assert place({**torchrun, "LOCAL_WORLD_SIZE": "1"}) == {"MASTER_PORT": "8"}
    assert place({"RANK": "1", "WORLD_SIZE": "2"}) == {} and place({}) == {}
