"""Checkpoints: put into the instance before the program starts, mirrored to S3 while it runs and a last time at its end."""

import hashlib
import json
import signal
import time

import pytest
from house import BUCKET, eventually
from jobs import Jobs


def config(prefix, path=None):
    return {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/{prefix}", **({"LocalPath": path} if path else {})}}


def keys(jobs, prefix):
    pages = jobs.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/")
    return {entry["Key"].removeprefix(f"{prefix}/"): entry["Size"] for page in pages for entry in page.get("Contents", [])}


def saved(jobs, prefix, name):
    """An object's content, or nothing if there is none."""
    try:
        return jobs.s3.get_object(Bucket=BUCKET, Key=f"{prefix}/{name}")["Body"].read()
    except jobs.s3.exceptions.NoSuchKey:
        return None


def test_files_are_saved_while_the_program_runs_and_at_its_end(jobs):
    script = """
cd /opt/ml/checkpoints
mkdir -p deep/er; echo one > deep/er/one
echo half > part.tmp; mv part.tmp whole; rm -f gone
while [ ! -e stop ]; do sleep 0.05; [ -e /opt/ml/checkpoints/go ] || { sleep 1.2; touch go; }; done &
sleep 3
echo last > deep/last
"""
    name = jobs.script(script, **config("first"))
    eventually(lambda: saved(jobs, "first", "deep/er/one") == b"one\n", 30)
    assert jobs.describe(name)["TrainingJobStatus"] == "InProgress"
    jobs.completed(name)
    print(jobs.logs(name))
    assert saved(jobs, "first", "deep/last") == b"last\n"
    assert set(keys(jobs, "first")) == {"deep/er/one", "whole", "go", "deep/last"}
