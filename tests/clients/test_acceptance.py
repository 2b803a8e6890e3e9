"""Scripts for Horovod and SageMaker's distributed libraries as training jobs by SDK v2:
`acceptance/` has one for each of the well-known examples, with the same calls in the same order.
A few run always, all of them, on two and four instances, with `cargo xtask test --all`.
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import sys

import data
import pytest
from house import BUCKET

HERE = pathlib.Path(__file__).parent
ALL = "SHOAL_TEST_ALL"
PYTORCH, TENSORFLOW, HUGGING_FACE = "PyTorch", "TensorFlow", "HuggingFace"
ENVIRONMENTS = {PYTORCH: "pytorch", TENSORFLOW: "tensorflow", HUGGING_FACE: "huggingface"}
NAMES = {HUGGING_FACE: "Hugging Face"}


def mpi(per_host=1, options=""):
    return {"mpi": {"enabled": True, "processes_per_host": per_host, "custom_mpi_options": options}}


def model_parallel(per_host=1, **parameters):
    return {**mpi(per_host), "smdistributed": {"modelparallel": {"enabled": True, "parameters": parameters}}}


DATA_PARALLEL = {"smdistributed": {"dataparallel": {"enabled": True}}}
TORCHRUN = {"torch_distributed": {"enabled": True}}


@dataclasses.dataclass
class Example:
    """What a job runs, and what it must say."""

    script: str
    framework: str
    distribution: dict
    instances: int = 2
    hyperparameters: dict = dataclasses.field(default_factory=dict)
    version: str = "2.0.1"
    # Metrics of the first rank's last line: at least, or at most if negative.
    expected: dict = dataclasses.field(default_factory=lambda: {"accuracy": 0.6})
    per_host: int = 1
    always: bool = False
    requirements: str = ""
    environment: dict = dataclasses.field(default_factory=dict)

    @property
    def name(self):
        given = "-".join(str(value) for value in self.hyperparameters.values())
        other = self.framework if self.framework == HUGGING_FACE else ""
        return "-".join(
            filter(None, [self.script, other, given, f"{self.instances}x{self.per_host}", "-".join(self.distribution)])
        )

    @property
    def instance_type(self):
        """Types are those that the SDK allows for the framework and the distribution."""
        kind = next(iter(self.distribution))
        if self.framework == HUGGING_FACE or self.framework == PYTORCH and kind == "torch_distributed":
            return "ml.g5.xlarge"
        return "ml.p3.16xlarge" if self.distribution == DATA_PARALLEL else "ml.m5.large"


def horovod(script="horovod_pytorch", framework=PYTORCH, per_host=1, **changes):
    options = "-x HOROVOD_FUSION_THRESHOLD=16777216"
    version = "2.0.1" if framework == PYTORCH else "2.12"
    return Example(script, framework, mpi(per_host, options), per_host=per_host, version=version, **changes)


PARTITIONS = {
    "partitions": 2,
    "microbatches": 2,
    "ddp": True,
    "placement_strategy": "spread",
    "pipeline": "interleaved",
    "optimize": "speed",
}


def sharded(degree):
    return {
        **TORCHRUN,
        "smdistributed": {"modelparallel": {"enabled": True, "parameters": {"hybrid_shard_degree": degree}}},
    }


def gpt(script="smp_gpt_simple", framework=PYTORCH, instances=2, hyperparameters=None, **parameters):
    """The launcher's parameters win over the script's, which has the same names."""
    version = "1.12.0" if framework == PYTORCH else "2.0.0"
    distribution = model_parallel(ddp=True, **parameters)
    return Example(
        script,
        framework,
        distribution,
        instances=instances,
        hyperparameters=hyperparameters or {},
        version=version,
        expected=TEXT_LEARNT,
    )


TEXT_LEARNT = {"loss": -4.0}
EXAMPLES = [
    # Horovod's own: compression to fp16, division before the sum.
    horovod(
        hyperparameters={"fp16-allreduce": True, "gradient-predivide-factor": 2.0},
        always=True,
        requirements="horovod==0.28.1\n",
    ),
    # Adasum does not scale the rate: a quarter of the steps learns less.
    horovod(hyperparameters={"use-adasum": True}, instances=4, expected={"accuracy": 0.3}),
    horovod(hyperparameters={"gradient-predivide-factor": 4.0}, per_host=2),
    horovod("horovod_sagemaker"),
    horovod("horovod_sagemaker", instances=4),
    horovod("horovod_elastic"),
    horovod("horovod_elastic", instances=4),
    horovod("horovod_keras", TENSORFLOW, always=True),
    horovod("horovod_keras", TENSORFLOW, hyperparameters={"passes": 2}, instances=4),
    horovod("horovod_tensorflow", TENSORFLOW),
    horovod("horovod_tensorflow", TENSORFLOW, instances=4),
    # SageMaker's data parallel library: its first API, as a backend, for TensorFlow.
    Example("smddp_v1", PYTORCH, DATA_PARALLEL),
    Example("smddp_v1", PYTORCH, DATA_PARALLEL, instances=4),
    Example("smddp_v1", PYTORCH, DATA_PARALLEL, per_host=2, environment={"SHOAL_PROCESSES_PER_INSTANCE": "2"}),
    Example("smddp", PYTORCH, DATA_PARALLEL, always=True),
    Example("smddp", PYTORCH, DATA_PARALLEL, instances=4),
    Example("smddp_tensorflow", TENSORFLOW, DATA_PARALLEL, version="2.11"),
    Example("smddp_tensorflow", TENSORFLOW, DATA_PARALLEL, instances=4, version="2.11"),
    # Its model parallel library, v1 and v2.
    Example("smp_mnist", PYTORCH, model_parallel(**PARTITIONS), version="1.12.0", always=True),
    Example("smp_mnist", PYTORCH, model_parallel(**PARTITIONS), instances=4, version="1.12.0"),
    Example("smp_mnist", PYTORCH, model_parallel(2, **PARTITIONS), per_host=2, version="1.12.0"),
    Example(
        "smp_bert",
        PYTORCH,
        model_parallel(partitions=2, microbatches=4, ddp=True),
        version="1.12.0",
        expected={"loss": -3.0},
    ),
    Example(
        "smp_bert",
        PYTORCH,
        model_parallel(partitions=2, microbatches=4, ddp=True),
        instances=4,
        version="1.12.0",
        expected={"loss": -3.0},
    ),
    gpt(partitions=2),
    gpt(
        instances=4,
        hyperparameters={"shard_optimizer_state": 1, "manual_partition": 1},
        partitions=2,
        shard_optimizer_state=True,
        auto_partition=False,
        default_partition=0,
    ),
    gpt(hyperparameters={"tensor_parallel_degree": 2}, tensor_parallel_degree=2, partitions=1),
    gpt(instances=4, hyperparameters={"tensor_parallel_degree": 2}, tensor_parallel_degree=2, partitions=2),
    gpt(framework=HUGGING_FACE, hyperparameters={"tensor_parallel_degree": 2}, tensor_parallel_degree=2, partitions=1),
    gpt("smp_gpt", sharded_data_parallel_degree=2, partitions=1),
    gpt("smp_gpt", instances=4, sharded_data_parallel_degree=2, partitions=1),
    gpt("smp_gpt", instances=4, hyperparameters={"fp16": 1}, sharded_data_parallel_degree=4, partitions=1, fp16=True),
    # Each instance writes to a disk of its own, so no two ranks have the same part.
    gpt(
        "smp_gpt", hyperparameters={"fp16": 1}, tensor_parallel_degree=2, partitions=1, fp16=True, prescaled_batch=True
    ),
    Example("smp_v2", PYTORCH, sharded(2), expected=TEXT_LEARNT),
    Example("smp_v2", PYTORCH, sharded(4), instances=4, expected=TEXT_LEARNT),
]


@pytest.fixture(scope="module")
def channels(jobs):
    """Where MNIST and a text are."""
    text = data.SHARED / "tinyshakespeare"
    if not text.exists():
        pytest.skip(f"needs ../shared/data (or its parent named in SHOAL_SHARED): there is no {text}")
    for name, content in data.mnist().items():
        jobs.put(f"mnist/{name}", content)
    [file] = [path for path in text.iterdir() if path.suffix == ".txt"][:1]
    jobs.put("text/input.txt", file.read_bytes()[:200_000])
    return {"digits": f"s3://{BUCKET}/mnist", "text": f"s3://{BUCKET}/text"}


def start(house, directory, example, channel):
    """Starts the job by SDK v2; gives its name."""
    shutil.copytree(HERE / "acceptance", directory, dirs_exist_ok=True)
    if example.requirements:
        (directory / "requirements.txt").write_text(example.requirements)
    given = {
        "entry_point": f"{example.script}.py",
        "framework_version": example.version,
        "py_version": "py310" if example.version.startswith("2.") else "py38",
        "instance_count": example.instances,
        "instance_type": example.instance_type,
        "distribution": example.distribution,
        "hyperparameters": example.hyperparameters,
        "environment": example.environment,
    }
    if example.framework == HUGGING_FACE:
        given |= {"transformers_version": "4.28.1", "pytorch_version": given.pop("framework_version")}
    if example.framework == TENSORFLOW:
        given["py_version"] = "py39" if example.version == "2.11" else "py310"
        given["model_dir"] = False
    command = [
        "exec",
        "--",
        sys.executable,
        str(HERE / "sdk_v2_train.py"),
        example.framework,
        json.dumps([given]),
        str(directory),
        channel,
    ]
    run = house.shoal(*command, cwd=directory, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])[0]


def text_of(lines):
    return [line.split("]<stdout>:", 1)[-1] for line in lines]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_trains(house, jobs, package, channels, tmp_path, example):
    if not house.has_environment(ENVIRONMENTS[example.framework]):
        name = NAMES.get(example.framework, example.framework)
        pytest.skip(f"needs the {name} environment: shoal env-cache prepare {ENVIRONMENTS[example.framework]}")
    if not example.always and not os.environ.get(ALL):
        pytest.skip("needs `cargo xtask test --all`: the examples that always run show the same libraries")
    channel = channels["text" if example.script in ("smp_gpt_simple", "smp_gpt", "smp_v2") else "digits"]
    name = start(house, tmp_path, example, channel)
    jobs.wait(name, 600)
    jobs.completed(name)
    logs = {host: text_of(lines) for host, lines in jobs.logs(name).items()}
    size = example.instances * example.per_host
    for rank in range(size):
        assert any(line.startswith(f"rank {rank} of {size}") for lines in logs.values() for line in lines), (rank, logs)
    printed = [dict(re.findall(r"([a-z]+)=([-0-9.]+);", line)) for line in logs["algo-1"]]
    last = [found for found in printed if found][-1]
    for metric, bound in example.expected.items():
        value = float(last[metric])
        assert value >= bound if bound >= 0 else value <= -bound, (metric, value)
    if example.requirements:
        assert any("satisfied by Shoal's horovod" in line for line in jobs.logs(name)["algo-1"])


FAULTY = """
import os, signal, sys, time
import torch
import horovod.torch as hvd
hvd.init()
kind = sys.argv[-1]
hvd.allreduce(torch.ones(4), name="first")
if hvd.rank() == 1 and kind == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if hvd.rank() == 1 and kind == "hung":
    time.sleep(600)
hvd.allreduce(torch.ones(5 if hvd.rank() == 1 and kind == "shapes" else 4), name="weights.grad")
"""
FAULTS = {
    "killed": ["rank 1", "SIGKILL"],
    "shapes": ["weights.grad", "[5]", "[4]"],
    "hung": ["weights.grad", "rank 1"],
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_of_a_rank_is_named(house, jobs, package, tmp_path, kind):
    if not house.has_environment("pytorch"):
        pytest.skip("needs the PyTorch environment: shoal env-cache prepare pytorch")
    from test_script_mode import create

    given = {
        "sagemaker_mpi_enabled": "true",
        "sagemaker_mpi_custom_mpi_options": '"-x HOROVOD_STALL_CHECK_TIME_SECONDS=2 -x HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=4"',
    }
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0.1-cpu-py310"
    name = create(jobs, {"train.py": FAULTY}, image=image, instances=2, hyperparameters={**given, "kind": kind})
    reason = jobs.failed(name)
    assert all(text in reason for text in FAULTS[kind]), reason
