"""What was acknowledged is there, and once, though the server is killed while many ask for much
at once.
"""

import os
import random
import signal
import threading
import time

import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from house import BUCKET, free_port
from jobs import Jobs

# Kills under a load of its own.
pytestmark = pytest.mark.alone

KILLS = 5 * int(os.environ.get("SHOAL_SOAK", "1"))
# What is not acknowledged is not asked for again: then the answer would tell of another request.
ONCE = Config(retries={"total_max_attempts": 1}, max_pool_connections=20)
WAITS = "trap 'exit 0' TERM; echo ready; while true; do sleep 0.1; done"


@pytest.fixture
def jobs(new_house):
    return Jobs(new_house("--instances", "1", port=free_port()))


class Load:
    """Threads that ask until they are told to stop, and note what was acknowledged."""

    def __init__(self, house, seed):
        self.sagemaker, self.s3 = house.client("sagemaker", config=ONCE), house.client("s3", config=ONCE)
        self.seed, self.over = seed, threading.Event()
        self.created, self.deleted, self.stored, self.doubtful = set(), set(), {}, set()
        self.refused, self.wrong = 0, []
        workers = [self.create] * 3 + [self.store] * 3 + [self.store_in_parts]
        self.threads = [
            threading.Thread(target=self.work, args=(worker, number)) for number, worker in enumerate(workers)
        ]
        for thread in self.threads:
            thread.start()

    def work(self, worker, number):
        numbers = random.Random(self.seed * 100 + number)
        turn = 0
        while not self.over.is_set():
            turn += 1
            try:
                worker(f"{number}-{turn}", numbers)
            except BotoCoreError:
                self.refused += 1
                time.sleep(0.02)
            except ClientError as error:
                # A server that starts or ends may say so; nothing here is the client's mistake.
                if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                    self.wrong.append(error)
                self.refused += 1

    def create(self, name, _):
        request = {
            "TrainingJobName": f"load-{name}",
            "RoleArn": "arn:aws:iam::123456789012:role/tests",
            "AlgorithmSpecification": {
                "TrainingImage": "shoal/host",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["/bin/true"],
            },
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        }
        self.sagemaker.create_training_job(**request)
        self.created.add(f"load-{name}")
        time.sleep(0.02)

    def store(self, name, numbers):
        key, body = f"load/{name}", numbers.randbytes(numbers.randrange(200_000))
        # From here on the key may be there or not, until it is acknowledged.
        self.doubtful.add(key)
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=body)
        self.stored[key] = body
        self.doubtful.discard(key)
        if numbers.random() < 0.2:
            self.doubtful.add(key)
            self.s3.delete_object(Bucket=BUCKET, Key=key)
            del self.stored[key]
            self.deleted.add(key)
            self.doubtful.discard(key)

    def store_in_parts(self, name, numbers):
        key, parts = f"load/parts-{name}", [numbers.randbytes(5 << 20), numbers.randbytes(1000)]
        self.doubtful.add(key)
        upload = self.s3.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
        tags = []
        for number, part in enumerate(parts, 1):
            answer = self.s3.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=number, Body=part)
            tags.append({"PartNumber": number, "ETag": answer["ETag"]})
        self.s3.complete_multipart_upload(Bucket=BUCKET, Key=key, UploadId=upload, MultipartUpload={"Parts": tags})
        self.stored[key] = b"".join(parts)
        self.doubtful.discard(key)

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


def test_what_was_acknowledged_is_there(jobs, figures):
    house = jobs.house
    seed = int(os.environ.get("SHOAL_SEED", random.randrange(2**32)))
    moments = random.Random(seed)
    first = jobs.command(WAITS)
    jobs.saying(first, "ready")
    load = Load(house, seed)
    try:
        for _ in range(KILLS):
            time.sleep(moments.uniform(0.2, 0.8))
            house.stop(signal.SIGKILL)
            house.start()
        time.sleep(0.2)
    finally:
        load.end()
    what = f"seed {seed}"
    assert load.refused and not load.wrong, (what, load.wrong)
    pages = jobs.sagemaker.get_paginator("list_training_jobs").paginate()
    listed = [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]
    assert len(listed) == len(set(listed)) and load.created <= set(listed), (what, load.created - set(listed))
    pages = jobs.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="load/")
    keys = {item["Key"] for page in pages for item in page.get("Contents", [])}
    assert set(load.stored) - load.doubtful <= keys and not keys & (load.deleted - load.doubtful), what
    for key in keys:
        body = jobs.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        assert body == load.stored.get(key, body), (what, key)
    # They run, one after the other, and to their ends; the most are stopped, to save time.
    some = sorted(load.created)[:10]
    for name in set(listed) - set(some) - {first}:
        jobs.sagemaker.stop_training_job(TrainingJobName=name)
    jobs.sagemaker.stop_training_job(TrainingJobName=first)
    for name in some:
        assert jobs.wait(name)["TrainingJobStatus"] in ("Completed", "Stopped"), what
    figures(
        f"killed {KILLS} times under load: {len(load.created)} jobs and {len(load.stored)} objects acknowledged, {load.refused} requests refused ({what})"
    )
