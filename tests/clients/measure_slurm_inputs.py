"""An input to one and to four nodes of a Slurm cluster of namespaces, each with a cache of its own:
seconds from the job's creation to its program's start, and how often the server sent the input.

    SHOAL_BIN=target/release/shoal python measure_slurm_inputs.py [MEGABYTES] [NODES ..]
"""

import os
import pathlib
import sys
import tempfile
import time

import slurm_cluster
from house import House
from jobs import Jobs

PART = 64 << 20


def put(jobs, key, megabytes):
    """An object that nothing compresses, in parts."""
    upload = jobs.s3.create_multipart_upload(Bucket="tests", Key=key)["UploadId"]
    parts = []
    for number in range(1, (megabytes << 20) // PART + 1):
        body = os.urandom(PART)
        etag = jobs.s3.upload_part(Bucket="tests", Key=key, UploadId=upload, PartNumber=number, Body=body)["ETag"]
        parts.append({"PartNumber": number, "ETag": etag})
    jobs.s3.complete_multipart_upload(Bucket="tests", Key=key, UploadId=upload, MultipartUpload={"Parts": parts})
    return len(parts) * PART


def main():
    megabytes, *nodes = [*map(int, sys.argv[1:])] or [1024]
    if problem := slurm_cluster.missing():
        sys.exit(problem)
    with tempfile.TemporaryDirectory() as directory:
        cluster = slurm_cluster.Cluster(pathlib.Path(directory) / "cluster", own_caches=True).up()
        house = House(settings=cluster.settings())
        try:
            jobs = Jobs(house)
            for instances in nodes or (1, 4):
                key = f"input-{instances}"
                size = put(jobs, f"{key}/data.bin", megabytes)
                before, begin = jobs.inputs_sent(), time.monotonic()
                name = jobs.command("echo ready; sleep 1", instances, InputDataConfig=[jobs.channel("data", key)])
                jobs.saying(name, "ready")
                passed, sent = time.monotonic() - begin, jobs.inputs_sent() - before
                jobs.completed(name)
                print(f"{megabytes} MiB to {instances} nodes: {passed:.1f} s, sent {sent / size:.2f} times", flush=True)
        finally:
            house.close()
            cluster.down()


if __name__ == "__main__":
    main()
