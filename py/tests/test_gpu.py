"""What runs on GPUs, on a machine that has one: `cargo xtask gpu`, or the folder that
`cargo xtask gpu --bundle DIR` writes. Ranks that share the GPU go through host memory, where that
is supported; over NCCL each has a GPU of its own, so that one GPU means one rank.

SHOAL_GPU_TESTS_ON=cpu rehearses on a machine without a GPU those checks that do not need one to
mean something.
"""

import ctypes
import os

import pytest
import torch_ranks
from torch_ranks import HERE, Ranks, free_port, said, start

REHEARSAL = os.environ.get("SHOAL_GPU_TESTS_ON") == "cpu"


def _gpus() -> int:
    """As CUDA's driver counts them: quicker than torch."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


GPUS = _gpus()
pytestmark = [
    torch_ranks.needs_torch(),
    pytest.mark.skipif(not GPUS and not REHEARSAL, reason="needs a GPU: CUDA's driver finds none"),
]
on_gpu_alone = pytest.mark.skipif(REHEARSAL, reason="needs a GPU: a rehearsal has none")
needs_backend = pytest.mark.skipif(
    torch_ranks.VERSION < (2, 14), reason="needs torch 2.14 or newer, as backend shoal does"
)
needs_two = pytest.mark.skipif(GPUS < 2, reason=f"needs 2 GPUs: CUDA's driver finds {GPUS}")

NCCL, BOTH, HOST = ("gloo", "cpu:shoal,cuda:gloo", "shoal") if REHEARSAL else ("nccl", "cpu:shoal,cuda:nccl", "shoal")
TORCH = ["large_batch", "optimizers", "distributed_optimizer", "local_training"]
HOROVOD = ["operations", "handles", "groups", "optimizer", "large_batches", "batch_norm", "state"]


class HorovodRanks(Ranks):
    """Ranks of a Horovod program."""

    PROGRAM = "horovod_rank.py"


#: Worlds of ranks: their class, how many, and their environment.
WORLDS = {
    "alone on NCCL": (Ranks, 1, {"SHOAL_TEST_BACKEND": NCCL}),
    "alone on both": (Ranks, 1, {"SHOAL_TEST_BACKEND": BOTH}),
    "two on a GPU": (Ranks, 2, {"SHOAL_TEST_BACKEND": HOST, "CUDA_VISIBLE_DEVICES": "0"}),
    "two on two GPUs": (Ranks, 2, {"SHOAL_TEST_BACKEND": BOTH}),
    "Horovod alone": (HorovodRanks, 1, {}),
    "Horovod alone through host memory": (HorovodRanks, 1, {"HOROVOD_GPU_OPERATIONS": "HOST"}),
    "Horovod, two on a GPU": (HorovodRanks, 2, {"CUDA_VISIBLE_DEVICES": "0"}),
    "Horovod, two on two GPUs": (HorovodRanks, 2, {}),
}


@pytest.fixture(scope="module")
def world():
    """Ranks by the name of their world; one world at a time, new after a failure."""
    made: dict[str, Ranks] = {}

    def of(name: str) -> Ranks:
        if name not in made or not made[name].living():
            while made:
                made.popitem()[1].end()
            kind, size, variables = WORLDS[name]
            made[name] = kind(size, **variables)
        return made[name]

    yield of
    for it in made.values():
        it.end()


def _cases(names: list[str], checks: list[str], marks=()) -> list:
    return [pytest.param(name, check, marks=marks) for name in names for check in checks]


@pytest.mark.parametrize(
    ("name", "check"),
    [
        *_cases(["alone on NCCL"], [*TORCH, "data_parallel"]),
        *_cases(["alone on both"], [*TORCH, "data_parallel"], needs_backend),
        *_cases(["two on a GPU"], TORCH, needs_backend),
        *_cases(
            ["alone on both"],
            ["both_backends", "kernels_before_and_after", "compressors"],
            [on_gpu_alone, needs_backend],
        ),
        *_cases(
            ["two on two GPUs"],
            [*TORCH, "data_parallel", "both_backends", "kernels_before_and_after"],
            [needs_two, needs_backend],
        ),
    ],
)
def test_torch(world, name, check):
    world(name).check("gpu_torch", check)


@pytest.mark.parametrize(
    ("name", "check"),
    [
        *_cases(["Horovod alone", "Horovod alone through host memory", "Horovod, two on a GPU"], HOROVOD),
        *_cases(
            ["Horovod alone", "Horovod alone through host memory", "Horovod, two on a GPU"],
            ["kernels_before_and_after", "which_way"],
            on_gpu_alone,
        ),
        *_cases(["Horovod, two on two GPUs"], [*HOROVOD, "kernels_before_and_after", "which_way"], needs_two),
    ],
)
def test_horovod(world, name, check):
    world(name).check("gpu_horovod", check)


def _program(size: int, *words: str, **more: str) -> list[str]:
    """Runs ranks of a program to their end; what they wrote to standard error."""
    port = free_port()
    ranks = [
        start(rank, size, port, str(HERE / "gpu_libraries.py"), *words, LOCAL_WORLD_SIZE=str(size), **more)
        for rank in range(size)
    ]
    try:
        codes = [it.wait(torch_ranks.PATIENCE_S) for it in ranks]
    finally:
        for it in ranks:
            it.kill()
    texts = [said(it) for it in ranks]
    assert codes == [0] * size, "\n".join(texts)
    return texts


@needs_backend
@pytest.mark.parametrize(
    "name", ["data_parallel", "first_version", "model_parallel", "model_parallel_fp16", "model_parallel_bf16"]
)
def test_libraries(name):
    _program(1, name)


@on_gpu_alone
@pytest.mark.parametrize("name", ["fsdp", "async_checkpoint"])
def test_sharded(name, tmp_path):
    _program(1, name, str(tmp_path))


@needs_backend
@on_gpu_alone
def test_model_parallel_ranks_that_share_a_gpu_are_told():
    _program(2, "model_parallel_shared", CUDA_VISIBLE_DEVICES="0")


@needs_two
@pytest.mark.parametrize("name", ["data_parallel", "model_parallel", "pipeline"])
def test_libraries_on_two_gpus(name):
    _program(2, name)
