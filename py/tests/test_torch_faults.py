"""A rank that is killed, hangs, or does something else than the others: each way to train gives
every other rank an error with who and what, and none waits for ever.
"""

import json

import fault_ranks
import pytest
import test_tensorflow
import torch_ranks

pytestmark = torch_ranks.needs_torch()

FAULTS = ["killed", "hung", "shape", "dtype", "order"]
#: How long a rank may be silent, and an operation by name wait for ranks.
SETTINGS = {
    "SHOAL_COMM_HEARTBEAT": "1.5",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "1",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "4",
}
#: Who.
GONE = {"killed": "rank 1 died", "hung": "rank 1 has given no sign of life"}
#: What: the operation in which others wait, and what ranks 0 and 1 call where they differ.
ERRORS = {
    "horovod": {
        "killed": ['"allreduce.0.bias", "allreduce.0.weight"'],
        "hung": ['"allreduce.0.bias", "allreduce.0.weight"'],
        "shape": [
            '"allreduce.1.weight": ranks 0, 2: allreduce (average) of f32 [1, 4]; rank 1: allreduce (average) of f32 [1, 5]'
        ],
        "dtype": ["ranks 0, 2: allreduce (average) of f32 [1]; rank 1: allreduce (average) of f64 [1]"],
    },
    "data_parallel": {
        "killed": ["broadcast"],
        "hung": ["broadcast"],
        "dtype": ["rank 0: broadcast (root 0) of 21 f32", "rank 1: broadcast (root 0) of 21 f64"],
        "order": ["rank 0: broadcast (root 0) of 5 i32", "rank 1: all-reduce (sum) of 7 f32"],
    },
    "collective": {
        "killed": ["all-reduce (sum) of 9 f32"],
        "hung": ["all-reduce (sum) of 9 f32"],
        "shape": ["rank 0: all-reduce (sum) of 9 f32", "rank 1: all-reduce (sum) of 8 f32"],
        "dtype": ["rank 0: all-reduce (sum) of 9 f32", "rank 1: all-reduce (sum) of 9 f64"],
        "order": ["rank 0: all-reduce (sum) of 9 f32", "rank 1: broadcast (root 0) of 7 f32"],
    },
    "pipeline": {
        "killed": ["recv"],
        "hung": ["recv"],
        "shape": ["cannot be multiplied (2x4 and 5x5)"],
        "dtype": ["Float and Double"],
    },
    "sharded": {
        "killed": ["all-gather of 7 f32"],
        "hung": ["all-gather of 7 f32"],
        "shape": ["rank 0: broadcast (root 0) of 21 f32", "rank 1: broadcast (root 0) of 26 f32"],
        "dtype": ["rank 0: broadcast (root 0) of 21 f32", "rank 1: broadcast (root 0) of 21 f64"],
        "order": ["rank 0: all-gather of 7 f32", "rank 1: all-reduce (sum) of 7 f32"],
    },
    "large_batch": {
        "killed": ["all-reduce (avg) of 21 f32"],
        "hung": ["all-reduce (avg) of 21 f32"],
        "shape": ["rank 0: broadcast (root 0) of 12 f32", "rank 1: broadcast (root 0) of 15 f32"],
        "dtype": ["rank 0: broadcast (root 0) of 12 f32", "rank 1: broadcast (root 0) of 12 f64"],
        "order": ["rank 0: all-reduce (avg) of 21 f32", "rank 1: all-reduce (sum) of 7 f32"],
    },
}
ERRORS["tape"] = ERRORS["graph"] = {
    # By this name `hvd.elastic.run` knows them, in a function where they are UnknownErrors.
    "killed": ['"DistributedGradientTape', "HorovodInternalError"],
    "hung": ['"DistributedGradientTape', "HorovodInternalError"],
    "shape": ["allreduce (average) of f32 [4]", "allreduce (average) of f32 [5]"],
    "dtype": ["of f32 [4]", "of f64 [4]"],
}
ERRORS["local_training"] = ERRORS["large_batch"]
ERRORS["model_parallel"] = ERRORS["large_batch"] | {"order": ["rank 0: all-reduce (avg) of 21 f32", "rank 1: barrier"]}


class Forks:
    """A process that has loaded a framework, which forks the ranks of a case."""

    def __init__(self, python, module):
        self.process = torch_ranks.spawn(python, str(torch_ranks.HERE / "fault_ranks.py"), module)
        self.read()

    def read(self):
        line = self.process.stdout.readline()
        assert line, torch_ranks.said(self.process)
        return json.loads(line)

    def ask(self, api, fault, stays):
        """The error of each rank that lives, by its number: its text and class. `stays`: no rank
        ends before all have one.
        """
        self.process.stdin.write(json.dumps([api, fault, torch_ranks.free_port(), SETTINGS, stays]) + "\n")
        self.process.stdin.flush()
        return {int(rank): f"{seen['text']} ({seen['kind']})" for rank, seen in self.read().items()}

    def end(self):
        self.process.stdin.close()
        self.process.wait(fault_ranks.TIMEOUT_S)


@pytest.fixture(scope="module")
def forks():
    """Those that have been asked for, by their module."""
    started = {}

    def of(module, python):
        if module not in started:
            started[module] = Forks(python, module)
        return started[module]

    yield of
    for it in started.values():
        it.end()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("api", ERRORS)
def test_every_rank_gets_the_error(forks, api, fault):
    in_tensorflow = api in ("tape", "graph")
    if in_tensorflow and test_tensorflow.PYTHON is None:
        pytest.skip(test_tensorflow.WITHOUT)
    module, python = (
        ("faults_tensorflow", test_tensorflow.PYTHON) if in_tensorflow else ("faults_torch", torch_ranks.PYTHON)
    )
    # Operations with names wait each for its own, until it gives up: nobody is to hear instead that
    # another rank gave up and ended.
    is_by_name = fault == "order" and (api == "horovod" or in_tensorflow)
    errors = forks(module, python).ask(api, fault, is_by_name)
    assert sorted(errors) == ([0, 2] if fault in GONE else [0, 1, 2])
    for rank, text in errors.items():
        words = ERRORS[api].get(fault, [])
        if (api, fault) == ("data_parallel", "shape"):
            # torch compares the shapes on each rank with those of rank 0, before anything of the
            # gradients: the others see that rank 1 ends.
            words = ["[5, 3]"] if rank == 1 else ["rank 1 died"]
        if is_by_name:
            own = '"DistributedGradientTape' if in_tensorflow else '"allreduce.0.bias"'
            words = ["metric", "waiting for"] if rank == 1 else [own, "rank 1"]
        if (api, fault) == ("pipeline", "order"):
            # Neither waits for what the other calls: it is the deadline that ends it.
            words = ["barrier", "waiting for ranks 0, 2"] if rank == 1 else ["recv", "rank 1"]
        if (api, fault, rank) in (("pipeline", "shape", 0), ("pipeline", "dtype", 2)):
            words = [*words, "stage 1 of the pipeline (rank 1)"]
        if fault in GONE:
            words = [*words, GONE[fault]]
        for word in words:
            # Of a rank that has not sent in time what it called, the others know that it was
            # something else.
            late = f"{word.partition(':')[0]}: nothing yet"
            assert word in text or (late in text and not late.startswith(f"rank {rank}:")), (rank, word, text)
