"""A channel in FastFile mode on a node that shares no files with the server: milliseconds from the
program's start to the first byte, and the rate of a reader in order beside that of the stored file
itself and of a GET of the object by curl, which writes nothing. Root drops the machine's page cache
before each.

    SHOAL_BIN=target/release/shoal python measure_fast_file.py [MEGABYTES]
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import time

import slurm_cluster
from house import BUCKET, House
from jobs import Jobs
from measure_slurm_inputs import put

READER = r"""
import glob, os, time
path = glob.glob("/opt/ml/input/data/data/*")[0]
begin = time.monotonic()
file = open(path, "rb", buffering=0)
file.read(1)
print(f"first byte after {1000 * (time.monotonic() - begin):.1f} ms", flush=True)
file.seek(0)
size, begin = 0, time.monotonic()
while block := file.read(4 << 20):
    size += len(block)
print(f"read {size} bytes in {time.monotonic() - begin:.3f} s", flush=True)
"""


def drop_caches():
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def source_rate(house, size):
    """Bytes a second of the object's own file, read in order."""
    file = max((house.data / "objects").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    drop_caches()
    begin = time.monotonic()
    with open(file, "rb", buffering=0) as source:
        while source.read(4 << 20):
            pass
    return size / (time.monotonic() - begin)


def get_rate(jobs, key, size):
    """Bytes a second of one GET, unencrypted."""
    url = jobs.s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": key})
    drop_caches()
    begin = time.monotonic()
    subprocess.run(["curl", "--silent", "--fail", "--output", "/dev/null", url], check=True)
    return size / (time.monotonic() - begin)


def main():
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 10240
    if problem := slurm_cluster.missing():
        sys.exit(problem)
    with tempfile.TemporaryDirectory() as directory:
        cluster = slurm_cluster.Cluster(pathlib.Path(directory) / "cluster", nodes=1, own_caches=True).up()
        house = House(settings=cluster.settings())
        try:
            jobs = Jobs(house)
            jobs.put("fast/code/read.py", READER)
            size = put(jobs, "fast/data/data.bin", megabytes)
            source = source_rate(house, size)
            print(f"the stored file: {source / 1e6:.0f} MB/s", flush=True)
            get = get_rate(jobs, "fast/data/data.bin", size)
            print(f"a GET by curl: {get / 1e6:.0f} MB/s", flush=True)
            drop_caches()
            begin = time.monotonic()
            channels = [
                {**jobs.channel("data", "fast/data/"), "InputMode": "FastFile"},
                jobs.channel("code", "fast/code/"),
            ]
            name = jobs.command("python3 /opt/ml/input/data/code/read.py", InputDataConfig=channels)
            jobs.saying(name, "first byte")
            print(f"from the job's creation to the first byte: {time.monotonic() - begin:.1f} s", flush=True)
            # Both cores are the job's.
            while jobs.describe(name)["TrainingJobStatus"] == "InProgress" and time.monotonic() < begin + 1800:
                time.sleep(1)
            jobs.completed(name)
            lines = "\n".join(jobs.lines(name))
            print(re.search("first byte.*", lines)[0])
            read, seconds = re.search(r"read (\d+) bytes in ([\d.]+)", lines).groups()
            rate = int(read) / float(seconds)
            print(
                f"a reader in order: {rate / 1e6:.0f} MB/s, {100 * rate / source:.0f} % of the stored file's, {100 * rate / get:.0f} % of the GET's"
            )
        finally:
            house.close()
            cluster.down()


if __name__ == "__main__":
    main()
