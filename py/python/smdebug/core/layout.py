"""Where files lie beneath the directory of a run, as AWS's library has them."""

import os
from typing import NamedTuple

from smdebug.core.modes import ModeKeys

END_OF_JOB_FILENAME = "training_job_end.ts"
CLAIM_FILENAME = "claim.smd"
#: Files of the index per directory.
_STEPS_PER_DIRECTORY = 1000


class IndexFile(NamedTuple):
    """What the name of a file of the index consists of."""

    step: int
    worker: str


def event_file(step: int, worker: str) -> str:
    """The tensors of a step of a worker."""
    return f"events/{step:012}/{step:012}_{worker}.tfevents"


def index_file(step: int, worker: str) -> str:
    """What is where in the file of tensors."""
    return f"index/{step // _STEPS_PER_DIRECTORY:09}/{step:012}_{worker}.json"


def collections_file(worker: str) -> str:
    """What a worker saves."""
    return f"collections/000000000/{worker}_collections.json"


def tensorboard_file(step: int, worker: str, mode: ModeKeys) -> str:
    """A step's summaries, beneath TensorBoard's directory."""
    return f"{mode.name}/{step:012}_{worker}.tfevents"


def parse_index_file(path: str) -> IndexFile | None:
    """Step and worker; nothing for other files."""
    name, ending = os.path.splitext(os.path.basename(path))
    step, _, worker = name.partition("_")
    return IndexFile(int(step), worker) if ending == ".json" and step.isdigit() and worker else None


def worker_of_collections(path: str) -> str | None:
    """Whose file of collections it is; nothing for other files."""
    name = os.path.basename(path)
    ending = "_collections.json"
    return name[: -len(ending)] if name.endswith(ending) else None


def write_whole(path: str, data: bytes) -> None:
    """Writes a file that readers and the upload see only when it is complete."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = f"{path}.tmp"
    with open(part, "wb") as file:
        file.write(data)
    os.replace(part, path)
