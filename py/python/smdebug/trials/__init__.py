"""Reads what a training saved: `create_trial(path)`."""

import os

from smdebug.exceptions import SMDebugNotImplementedError
from smdebug.trials.sources import Local, S3, parse_s3
from smdebug.trials.trial import Trial

__all__ = ["Trial", "create_trial"]


def create_trial(path, name=None, profiler=False, range_steps=None, cache=False, **_ignored):
    """A trial of the files in a directory, or beneath `s3://BUCKET/PREFIX` (with boto3, which has to
    be installed for that).

    `range_steps` (first, last) reads steps from the first on and before the last.
    """
    if profiler:
        raise SMDebugNotImplementedError(
            "profiler=True: the profiler's files are not read here. `shoal jobs show NAME --utilisation` and the "
            "job's page show what instances did"
        )
    path = path.strip()
    name = os.path.basename(path.rstrip("/")) if name is None else name
    source = Local(path) if parse_s3(path) is None else S3(path)
    return Trial(name, source, range_steps=range_steps, cache=cache)
