"""`shoal backup` and `shoal restore` of a real server: once, continuously, and when both are killed."""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from house import BUCKET, House, eventually, free_port
from jobs import Jobs
from s3_servers import BUCKET as TARGET
from s3_servers import KEYS, KINDS, Server

#: Acknowledged work that may be lost; on a machine that does nothing else it is half a second.
MOST_LOST_S = 2.0


def restored(house, target, name, *flags):
    """A server on what is restored from this target."""
    data = house.root / name
    report = json.loads(house.shoal("restore", target, "--data-dir", data, "--json").stdout)
    return report, House(*flags, data=data)


def test_a_backup_comes_back_on_another_server(new_house):
    house = new_house()
    jobs = Jobs(house)
    for number in range(50):
        jobs.put(f"backup/{number}", bytes([number]) * (number * 3000))
    ended = jobs.script("echo a line of the log")
    jobs.completed(ended)
    runs = jobs.script("sleep 600")
    eventually(lambda: jobs.describe(runs)["SecondaryStatus"] == "Training")
    target = house.root / "target"
    first = house.shoal("backup", target).stdout
    assert "1 running jobs" in first
    second = json.loads(house.shoal("backup", target, "--json", "--keep", "1").stdout)
    assert second["written_bytes"] < 200_000, "only what is new"
    (listed,) = json.loads(house.shoal("backup", "list", target, "--json").stdout)
    assert listed["id"] == second["id"] and listed["id"] in house.shoal("backup", "list", target).stdout

    text = house.shoal("restore", target, "--data-dir", house.root / "by-hand").stdout
    assert "1 training jobs had not ended" in text and "a copy with an id of its own" in text
    refused = house.shoal("restore", target, "--data-dir", house.root / "by-hand", check=False)
    assert refused.returncode == 1 and "is not empty" in refused.stderr
    other = House("--silence-s", "1", data=house.root / "by-hand")
    try:
        theirs = Jobs(other)
        ours, copied = jobs.describe(ended), theirs.describe(ended)
        assert {**copied, "ResponseMetadata": ours["ResponseMetadata"]} == ours
        assert "a line of the log" in other.shoal("jobs", "logs", ended).stdout
        for number in range(50):
            body = theirs.s3.get_object(Bucket=BUCKET, Key=f"backup/{number}")["Body"].read()
            assert body == bytes([number]) * (number * 3000)
        # What ran on the other server is lost to this one, and runs there unchanged.
        assert "agent" in theirs.failed(runs)
        assert jobs.describe(runs)["SecondaryStatus"] == "Training"
        theirs.completed(theirs.script("true"))
    finally:
        other.close()
    house.shoal("jobs", "stop", runs, "--yes", check=False)


class Work:
    """Puts objects and creates resources; when each was acknowledged."""

    def __init__(self, house, round_):
        self.s3, self.sagemaker, self.round = house.client("s3"), house.client("sagemaker"), round_
        self.acknowledged, self.ends = {}, False
        self.threads = [threading.Thread(target=self.put), threading.Thread(target=self.create)]
        for thread in self.threads:
            thread.start()

    def put(self):
        self.repeat(lambda key: self.s3.put_object(Bucket=BUCKET, Key=f"work/{key}", Body=key.encode() * 999))

    def create(self):
        self.repeat(lambda key: self.sagemaker.create_experiment(ExperimentName=f"e-{key}"))

    def repeat(self, work):
        for number in itertools.count():
            key = f"{self.round}-{number}"
            try:
                work(key)
            except (BotoCoreError, ClientError):
                return
            self.acknowledged[threading.current_thread().name, key] = time.monotonic()
            if self.ends:
                return

    def join(self):
        self.ends = True
        for thread in self.threads:
            thread.join()


def age_of_what_is_lost(house, work, killed_at):
    """How long before the end the oldest of what is missing was acknowledged."""
    s3, sagemaker = house.client("s3"), house.client("sagemaker")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="work/")
    objects = {entry["Key"].removeprefix("work/") for page in pages for entry in page.get("Contents", [])}
    pages = sagemaker.get_paginator("list_experiments").paginate()
    experiments = {
        entry["ExperimentName"].removeprefix("e-") for page in pages for entry in page["ExperimentSummaries"]
    }
    puts = work.threads[0].name
    lost = [
        killed_at - at
        for (thread, key), at in work.acknowledged.items()
        if key not in (objects if thread == puts else experiments)
    ]
    for key in sorted(objects)[-3:]:
        assert s3.get_object(Bucket=BUCKET, Key=f"work/{key}")["Body"].read() == key.encode() * 999
    return max(lost, default=0)


def test_what_is_acknowledged_is_elsewhere_within_a_second(new_house, figures):
    """Both are killed at random moments, again and again on the same data and target."""
    seed = int(os.environ.get("SHOAL_SEED", random.randrange(1 << 30)))
    print(f"SHOAL_SEED={seed}")
    chance = random.Random(seed)
    house = new_house()
    house.client("s3").create_bucket(Bucket=BUCKET)
    target, worst = house.root / "target", 0
    for round_ in range(2):
        command = house.command("backup", str(target), "--continuous", "--keep", "2")
        with open(house.root / "backup.log", "ab") as log:
            follower = subprocess.Popen(command, env=house.environment, stdout=log, stderr=log)
        known = round_ and {entry["id"] for entry in listed(house, target)}
        eventually(lambda: target.exists() and {entry["id"] for entry in listed(house, target)} - (known or set()))
        if round_ == 1:
            # The server is started again while it is followed.
            house.stop(signal.SIGKILL)
            house.start()
        work = Work(house, round_)
        time.sleep(1 + chance.random())
        both = [lambda: house.stop(signal.SIGKILL), follower.kill]
        chance.shuffle(both)
        killed_at = time.monotonic()
        both[0]()
        time.sleep(chance.random() / 10)
        both[1]()
        follower.wait()
        work.join()
        assert len(work.acknowledged) > 20, (house.root / "backup.log").read_text()
        _, other = restored(house, target, f"restored-{round_}")
        try:
            assert "nothing is damaged" in other.shoal("verify").stdout
            worst = max(worst, age_of_what_is_lost(other, work, killed_at))
        finally:
            other.close()
        shutil.rmtree(house.root / f"restored-{round_}", ignore_errors=True)
        house.start()
    figures(f"continuous backup: of what was acknowledged, at most the last {1000 * worst:.0f} ms were lost")
    assert worst < MOST_LOST_S, f"SHOAL_SEED={seed}"


def listed(house, target):
    found = house.shoal("backup", "list", target, "--json", check=False)
    return json.loads(found.stdout) if found.returncode == 0 else []


def test_a_second_one_and_a_stop(new_house):
    house = new_house()
    target = house.root / "target"
    follower = subprocess.Popen(
        house.command("backup", str(target), "--continuous"),
        env=house.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: target.exists() and listed(house, target))
    second = house.shoal("backup", target, check=False)
    assert second.returncode == 1 and f"in use by process {follower.pid}" in second.stderr
    house.client("s3").create_bucket(Bucket="after-the-first")
    follower.terminate()
    _, errors = follower.communicate(timeout=60)
    assert follower.returncode == 0 and "everything is in the target" in errors
    _, other = restored(house, target, "new")
    try:
        names = [bucket["Name"] for bucket in other.client("s3").list_buckets()["Buckets"]]
        assert "after-the-first" in names
    finally:
        other.close()


@pytest.fixture(params=["shoal", *KINDS])
def store(request, house):
    """The variables of an S3 server, with an empty bucket: another Shoal, and others' servers."""
    if request.param == "shoal":
        house.client("s3").create_bucket(Bucket=TARGET)
        yield request.param, house.variables_for_clients()
        return
    server = Server(request.param)
    yield request.param, {**KEYS, "AWS_ENDPOINT_URL": server.endpoint}
    server.close()


def test_a_bucket_of_another_server_is_a_target(new_house, store):
    kind, theirs = store
    ours = new_house()
    jobs = Jobs(ours)
    long = os.urandom(9_000_000)
    jobs.put("elsewhere/long", long)
    keys = {name: theirs[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    target = f"s3://{TARGET}/of/ours?endpoint={theirs['AWS_ENDPOINT_URL']}&region={theirs['AWS_REGION']}"
    environment = {**ours.environment, **keys}
    first = json.loads(ours.shoal("backup", target, "--json", env=environment).stdout)
    assert first["written_bytes"] > len(long)
    jobs.put("elsewhere/new", b"new")
    second = json.loads(ours.shoal("backup", target, "--json", "--keep", "1", env=environment).stdout)
    assert second["written_bytes"] < 200_000
    (listed,) = json.loads(ours.shoal("backup", "list", target, "--json", env=environment).stdout)
    assert listed["id"] == second["id"]

    follower = subprocess.Popen(ours.command("backup", target, "--continuous"), env=environment, stdout=subprocess.PIPE)
    assert follower.stdout.readline()
    refused = ours.shoal("backup", target, check=False, env=environment)
    assert refused.returncode == 1 and f"in use by process {follower.pid}" in refused.stderr
    jobs.put("elsewhere/last", b"last")
    follower.terminate()
    assert follower.wait(60) == 0
    ours.shoal("restore", target, "--data-dir", ours.root / "new", env=environment)
    other = House(data=ours.root / "new")
    try:
        s3 = other.client("s3")
        for key, content in {"long": long, "new": b"new", "last": b"last"}.items():
            assert s3.get_object(Bucket=BUCKET, Key=f"elsewhere/{key}")["Body"].read() == content
    finally:
        other.close()
    if kind != "moto":
        wrong = {**environment, "AWS_SECRET_ACCESS_KEY": "x" * 40}
        refused = ours.shoal("backup", "list", target, check=False, env=wrong)
        assert refused.returncode == 1 and "refuses these keys" in refused.stderr
    refused = ours.shoal("backup", "list", "s3://b?speed=fast", check=False)
    assert refused.returncode == 2 and "no option `speed`" in refused.stderr


def test_a_bucket_that_is_away_for_longer_than_a_lock_lasts(new_house):
    ours, theirs = new_house(), new_house(port=free_port())
    theirs.client("s3").create_bucket(Bucket="backups")
    variables = theirs.variables_for_clients()
    keys = {name: variables[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    target = f"s3://backups/of/ours?endpoint={variables['AWS_ENDPOINT_URL']}"
    environment = {**ours.environment, **keys}
    log = ours.root / "backup.log"
    with open(log, "wb") as errors:
        command = ours.command("backup", target, "--continuous")
        follower = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors)
    assert follower.stdout.readline()
    theirs.stop(signal.SIGKILL)
    ours.client("s3").create_bucket(Bucket="meanwhile")
    time.sleep(14)
    theirs.start()
    eventually(lambda: "the target answers again" in log.read_text(), 60)
    assert "not up to date" in log.read_text() and "another process" not in log.read_text()
    ours.client("s3").create_bucket(Bucket="afterwards")
    follower.terminate()
    assert follower.wait(60) == 0, log.read_text()
    (listed,) = json.loads(ours.shoal("backup", "list", target, "--json", env=environment).stdout)
    assert listed["ticks"] and not listed["damage"], "no second backup was needed"
    ours.shoal("restore", target, "--data-dir", ours.root / "new", env=environment)
    other = House(data=ours.root / "new")
    try:
        names = [bucket["Name"] for bucket in other.client("s3").list_buckets()["Buckets"]]
        assert {"meanwhile", "afterwards"} <= set(names)
    finally:
        other.close()
