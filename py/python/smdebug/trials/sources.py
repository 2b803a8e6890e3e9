"""Where the files of a run are: a directory, or a bucket."""

import os
import re

from smdebug.core.json_config import is_sagemaker_job
from smdebug.exceptions import SMDebugError

#: What works within a training job.
_CHANNEL = (
    "within a training job, give the tensors to it as a channel (shoal train --channel tensors=s3://..., fit, "
    "InputDataConfig) and read that: create_trial('/opt/ml/input/data/tensors')"
)
_S3 = re.compile(r"s3://([^/]+)/?(.*)$")


def parse_s3(path: str) -> tuple[str, str] | None:
    """Bucket and prefix; nothing for paths of files."""
    found = _S3.match(path)
    return (found.group(1), found.group(2)) if found else None


class Local:
    """Files of a directory; names are relative to it."""

    #: Seconds between two looks at a run that continues.
    interval_s = 0.1

    def __init__(self, path: str):
        self.path = os.path.expanduser(path)

    def list(self, directory: str, behind: str | None = None) -> list[str]:
        """Complete files beneath a directory, in order, from that name on."""
        found = []
        for parent, directories, names in os.walk(os.path.join(self.path, directory)):
            relative = os.path.relpath(parent, self.path)
            # A long run has a directory of index files per thousand steps.
            first = "" if behind is None else os.path.dirname(behind)
            directories[:] = [name for name in directories if os.path.join(relative, name) >= first]
            found += [os.path.join(relative, name) for name in names if not name.endswith(".tmp")]
        return sorted(name for name in found if behind is None or name > behind)

    def has(self, name: str) -> bool:
        """Whether the file is there."""
        return os.path.exists(os.path.join(self.path, name))

    def read(self, name: str, at: int = 0, length: int | None = None) -> bytes:
        """A file's bytes; FileNotFoundError where there is none."""
        with open(os.path.join(self.path, name), "rb") as file:
            file.seek(at)
            return file.read(-1 if length is None else length)


class S3:
    """Objects beneath a prefix; names are relative to it."""

    #: As above.
    interval_s = 0.5

    def __init__(self, path: str):
        try:
            import boto3
        except ImportError:
            raise SMDebugError(
                f"create_trial reads {path} with boto3, which this Python does not have: install it (pip install "
                f"boto3); or, {_CHANNEL}"
            ) from None
        self.bucket, prefix = parse_s3(path)
        self._prefix = prefix.rstrip("/") + "/" if prefix else ""
        self.path = f"s3://{self.bucket}/{self._prefix}"
        self._client = boto3.client("s3")

    def list(self, directory: str, behind: str | None = None) -> list[str]:
        """Objects beneath a directory, in order, behind that name."""
        start = {"StartAfter": self._prefix + behind} if behind else {}
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=f"{self._prefix}{directory}/", **start
        )
        keys = (one["Key"] for page in pages for one in page.get("Contents", ()))
        return [key[len(self._prefix) :] for key in keys]

    def has(self, name: str) -> bool:
        """Whether the object is there."""
        try:
            found = self._client.list_objects_v2(Bucket=self.bucket, Prefix=self._prefix + name, MaxKeys=1)
        except self._client.exceptions.ClientError as error:
            if error.response["Error"]["Code"] == "AccessDenied" and is_sagemaker_job():
                raise SMDebugError(f"a training job's keys do not open {self.path}: {_CHANNEL}") from error
            raise
        return found.get("KeyCount", 0) > 0

    def read(self, name: str, at: int = 0, length: int | None = None) -> bytes:
        """An object's bytes; FileNotFoundError where there is none."""
        part = {} if length is None else {"Range": f"bytes={at}-{at + length - 1}"}
        try:
            return self._client.get_object(Bucket=self.bucket, Key=self._prefix + name, **part)["Body"].read()
        except self._client.exceptions.NoSuchKey:
            raise FileNotFoundError(f"{self.path}{name}") from None
