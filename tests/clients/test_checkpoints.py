"""Checkpoints: put into the instance before the program starts, mirrored to S3 while it runs and
a last time at its end.
"""

import base64
import hashlib
import json
import os
import pathlib
import random
import signal
import time

import pytest
import records
import traces
from botocore.exceptions import ClientError
from house import BUCKET, eventually
from jobs import GROUP, Jobs


def config(prefix, path=None):
    return {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/{prefix}", **({"LocalPath": path} if path else {})}}


def keys(jobs, prefix):
    pages = jobs.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/")
    return {
        entry["Key"].removeprefix(f"{prefix}/"): entry["Size"] for page in pages for entry in page.get("Contents", [])
    }


def saved(jobs, prefix, name):
    """An object's content, or nothing if there is none."""
    try:
        return jobs.s3.get_object(Bucket=BUCKET, Key=f"{prefix}/{name}")["Body"].read()
    except jobs.s3.exceptions.NoSuchKey:
        return None


def receipts(jobs, name):
    return json.loads(jobs.house.shoal("jobs", "checkpoints", name, "--json").stdout)


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def check_receipts(jobs, name, prefix):
    """Every object has a receipt of this job that is true, and every receipt an object; gives
    the paths.
    """
    of = {receipt["Path"]: receipt for receipt in receipts(jobs, name)}
    assert of.keys() == keys(jobs, prefix).keys()
    for path, receipt in of.items():
        content = saved(jobs, prefix, path)
        assert (receipt["Bytes"], receipt["Sha256"]) == (len(content), sha256(content)), path
        head = jobs.s3.head_object(Bucket=BUCKET, Key=f"{prefix}/{path}", ChecksumMode="ENABLED")
        assert base64.b64decode(head["ChecksumSHA256"]).hex() == receipt["Sha256"]
    return set(of)


@pytest.mark.targets
def test_files_are_saved_while_the_program_runs_and_at_its_end(jobs):
    script = """
cat /opt/ml/input/config/checkpointconfig.json; echo
cd /opt/ml/checkpoints
mkdir -p deep/er; echo one > deep/er/one
echo half > part.tmp; mv part.tmp whole
echo platform > x.sagemaker-ignore
echo temporary > gone; rm gone
while [ ! -e /opt/ml/checkpoints/go ]; do sleep 0.05; [ -s /opt/ml/checkpoints/deep/er/one ] && sleep 2 && touch go; done
mkdir later; echo two > later/two; rm whole
echo last > deep/last
"""
    name = jobs.script(script, **config("first"))
    eventually(lambda: saved(jobs, "first", "deep/er/one") == b"one\n" and saved(jobs, "first", "whole") == b"half\n")
    assert jobs.describe(name)["TrainingJobStatus"] == "InProgress", "not only at the end"
    assert jobs.describe(name)["CheckpointConfig"] == {"S3Uri": f"s3://{BUCKET}/first"}
    jobs.completed(name)
    assert json.loads(jobs.lines(name)[0]) == {"S3Uri": f"s3://{BUCKET}/first", "LocalPath": "/opt/ml/checkpoints"}
    # What the program deleted stays in S3.
    assert check_receipts(jobs, name, "first") == {"deep/er/one", "whole", "go", "later/two", "deep/last"}
    table = jobs.house.shoal("jobs", "checkpoints", name).stdout
    assert table.splitlines()[0].split() == ["PATH", "HOST", "BYTES", "SAVED", "SHA-256"] and "deep/er/one" in table
    refused = jobs.house.shoal("jobs", "checkpoints", "nobody", check=False)
    assert refused.returncode != 0 and "training job nobody" in refused.stderr


COUNT_ON = """
import os, signal, sys, time
here = "/opt/ml/checkpoints/state"
done = int(open(here).read()) if os.path.exists(here) else 0
print("from", done, flush=True)
for step in range(done + 1, {last} + 1):
    with open(here + ".new", "w") as file:
        file.write(str(step))
    os.replace(here + ".new", here)
    print("step", step, flush=True)
    time.sleep(0.05)
    if step == {death}:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_program_goes_on_where_it_was(jobs):
    name = jobs.python(COUNT_ON.format(last=20, death=7), **config("killed"))
    assert "killed" in jobs.failed(name)
    assert saved(jobs, "killed", "state") == b"7"
    assert "state.new" not in keys(jobs, "killed"), "a file that is to get another name is not saved"
    name = jobs.python(COUNT_ON.format(last=20, death=0), **config("killed/"))
    jobs.completed(name)
    assert [line for line in jobs.lines(name)] == ["from 7", *(f"step {step}" for step in range(8, 21))]
    assert saved(jobs, "killed", "state") == b"20"


def test_another_attempt_goes_on_where_the_first_was(new_house):
    jobs = Jobs(new_house())
    name = jobs.python(
        COUNT_ON.format(last=40, death=0), RetryStrategy={"MaximumRetryAttempts": 1}, **config("attempts")
    )
    eventually(lambda: int(saved(jobs, "attempts", "state") or 0) >= 10)
    (agent,) = traces.agents(jobs.house).values()
    os.kill(agent, signal.SIGKILL)
    jobs.completed(name)
    # Both attempts' streams are of the same host; the second one's begins where S3 was.
    streams = jobs.logs_client.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")["logStreams"]
    starts = []
    for stream in streams:
        answer = jobs.logs_client.get_log_events(
            logGroupName=GROUP, logStreamName=stream["logStreamName"], startFromHead=True
        )
        starts += [
            int(event["message"].split()[1]) for event in answer["events"] if event["message"].startswith("from ")
        ]
    assert len(starts) == 2 and max(starts) >= 10 and saved(jobs, "attempts", "state") == b"40", starts


def test_a_stopped_program_saves_in_its_grace(jobs):
    name = jobs.script(
        "trap 'echo bye > /opt/ml/checkpoints/bye; exit 0' TERM; echo up; while :; do sleep 0.1; done",
        **config("stopped"),
    )
    jobs.saying(name, "up")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    assert check_receipts(jobs, name, "stopped") == {"bye"}
    # One that does not listen is killed, and what it has closed is saved.
    name = jobs.script(
        "trap '' TERM; echo up; while :; do date +%N > /opt/ml/checkpoints/now; sleep 0.3; done", **config("deaf")
    )
    jobs.saying(name, "up")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    assert check_receipts(jobs, name, "deaf") == {"now"}


HALF = """
import os, signal, time
with open("/opt/ml/checkpoints/model", "w") as file:
    file.write("whole")
time.sleep(1)
with open("/opt/ml/checkpoints/model", "w") as file:
    for part in range(30):
        file.write("half"); file.flush(); os.fsync(file.fileno())
        print("part", part, flush=True)
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


# A program that pauses in the middle of a file, as on a busy machine, is not told from one that has
# written it.
@pytest.mark.alone
def test_a_file_is_never_saved_by_halves(jobs):
    name = jobs.python(HALF, **config("half"))
    eventually(lambda: saved(jobs, "half", "model") == b"whole")
    for _ in jobs.while_running(name):
        assert saved(jobs, "half", "model") == b"whole"
        time.sleep(0.05)
    jobs.failed(name)
    assert saved(jobs, "half", "model") == b"whole", "what the kill cut short does not replace what was whole"
    assert any(
        "checkpoint model was being written when the program was killed" in line for line in jobs.logs(name)["algo-1"]
    )


@pytest.mark.targets
def test_every_host_is_restored_and_the_last_writer_wins(jobs):
    for key, content in [("hosts/old", "old"), ("hosts/sub/old", "sub"), ("hosts-not/x", "other")]:
        jobs.put(key, content)
    script = """
cd /tmp/state; find . -type f | sort | tr '\\n' ' '; cat old sub/old; echo
echo changed > old; rm sub/old
hostname > own-$(hostname)
[ $(hostname) = algo-1 ] || sleep 5
hostname > both
"""
    # Several instances on a cluster have its network.
    is_isolated = "SHOAL_TEST_TARGET" not in os.environ
    changes = {"EnableNetworkIsolation": is_isolated, **config("hosts", "/tmp/state/")}
    name = jobs.script(script, instances=2, **changes)
    jobs.completed(name)
    for host in ("algo-1", "algo-2"):
        assert jobs.lines(name, host) == ["./old ./sub/old oldsub"]
        assert any("2 checkpoint files" in line for line in jobs.logs(name)[host])
    assert set(keys(jobs, "hosts")) == {"old", "sub/old", "own-algo-1", "own-algo-2", "both"}
    assert saved(jobs, "hosts", "both") == b"algo-2\n" and saved(jobs, "hosts", "sub/old") == b"sub"
    assert saved(jobs, "hosts", "old") == b"changed\n"
    who = {(receipt["Path"], receipt["Host"]) for receipt in receipts(jobs, name)}
    assert who == {("own-algo-1", "algo-1"), ("own-algo-2", "algo-2")} | {
        (it, f"algo-{k}") for it in ("both", "old") for k in (1, 2)
    }


MANY = """
import os
for number in range(2000):
    directory = f"/opt/ml/checkpoints/{number % 40}"
    os.makedirs(directory, exist_ok=True)
    with open(f"{directory}/{number}", "w") as file:
        file.write(f"content {number}")
for turn in range(100):
    with open("/opt/ml/checkpoints/again", "w") as file:
        file.write(f"turn {turn}")
"""


def test_many_files_and_one_that_is_replaced_at_once_again(jobs):
    start = time.monotonic()
    name = jobs.python(MANY, **config("many"))
    jobs.completed(name)
    print(f"2,000 files took {time.monotonic() - start:.1f} s")
    assert saved(jobs, "many", "again") == b"turn 99"
    of = {receipt["Path"]: receipt["Sha256"] for receipt in receipts(jobs, name)}
    assert len(of) == 2001
    for number in range(2000):
        assert of[f"{number % 40}/{number}"] == sha256(f"content {number}".encode())
    assert keys(jobs, "many").keys() == of.keys()


LARGE = """
import hashlib, os, time
block = os.urandom(1 << 20)
digest = hashlib.sha256()
with open("/opt/ml/checkpoints/large", "wb") as file:
    for number in range({blocks}):
        data = number.to_bytes(8, "big") + block
        digest.update(data)
        file.write(data)
print("closed", digest.hexdigest(), flush=True)
for line in range(60):
    print("line", line, time.time(), flush=True)
    time.sleep(0.05)
"""


def test_a_large_file_is_held_by_nobody_and_in_nobodys_way(jobs):
    blocks = 150
    name = jobs.python(LARGE.format(blocks=blocks), **config("large"))
    jobs.saying(name, "closed")
    (agent,) = traces.agents(jobs.house).values()
    memory = 0
    for _ in jobs.while_running(name):
        try:
            status = pathlib.Path(f"/proc/{agent}/status").read_text()
        except OSError:
            break
        memory = max([memory, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))])
    jobs.completed(name)
    digest = next(line.split()[1] for line in jobs.lines(name) if line.startswith("closed"))
    (receipt,) = receipts(jobs, name)
    assert (receipt["Sha256"], receipt["Bytes"]) == (digest, blocks * ((1 << 20) + 8))
    body = jobs.s3.get_object(Bucket=BUCKET, Key="large/large")["Body"]
    whole = hashlib.sha256()
    for chunk in body.iter_chunks(1 << 20):
        whole.update(chunk)
    assert whole.hexdigest() == digest
    print(f"the agent had {memory} KiB at most")
    assert memory < 100 << 10, "it does not hold the file"


STEPS = """
import os, random, time
random.seed(1)
for number in range(300):
    path = f"/opt/ml/checkpoints/{number % 7}/file-{number}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"%d " % number * random.choice([1, 1000, 100000]))
    with open("/opt/ml/checkpoints/latest.new", "w") as file:
        file.write(str(number))
    os.replace("/opt/ml/checkpoints/latest.new", "/opt/ml/checkpoints/latest")
    time.sleep(0.01)
print("all written", flush=True)
"""


def test_a_killed_server_loses_nothing_that_it_acknowledged(new_house):
    house = new_house()
    jobs = Jobs(house)
    name = jobs.python(STEPS, **config("server"))
    eventually(lambda: records.receipts(house, name))
    chance = random.Random(5)
    states = {"stored without a receipt": 0, "all acknowledged": 0}
    acknowledged = {}
    for _ in range(10):
        time.sleep(chance.random() * 0.6)
        house.stop(signal.SIGKILL)
        given = records.receipts(house, name)
        stored = records.objects(house, "server/")
        # Nothing that had a receipt has none now, and nothing has a receipt that is not stored.
        assert acknowledged.keys() <= given.keys() and given.keys() <= stored.keys()
        states["stored without a receipt" if stored.keys() - given.keys() else "all acknowledged"] += 1
        acknowledged = given
        house.start()
        jobs.connect()
    print("states at the kill:", states)
    jobs.completed(name)
    assert len(check_receipts(jobs, name, "server")) == 301
    assert saved(jobs, "server", "latest") == b"299"
    # Half-written objects of the server's deaths are gone: there is one file for each object.
    house.stop()
    house.start()
    jobs.connect()
    files = sum(len(names) for _, _, names in os.walk(house.data / "objects"))
    assert files == len(records.objects(house, ""))


def test_what_cannot_be_mirrored_is_refused_at_creation(jobs):
    for changes, field, why in [
        ({"S3Uri": "s3://no-such-bucket/x"}, "checkpointConfig.s3Uri", "does not exist"),
        (
            {"S3Uri": f"s3://{BUCKET}/x", "LocalPath": "/opt/ml/input/data"},
            "checkpointConfig.localPath",
            "/opt/ml/input",
        ),
        ({"S3Uri": f"s3://{BUCKET}/x", "LocalPath": "/opt/ml/../.."}, "checkpointConfig.localPath", "'..'"),
        ({"S3Uri": f"s3://{BUCKET}/x", "LocalPath": "/"}, "checkpointConfig.localPath", "more than checkpoints"),
        ({"S3Uri": f"s3://{BUCKET}/x", "LocalPath": "relative"}, "checkpointConfig.localPath", "absolute"),
    ]:
        with pytest.raises(ClientError) as refused:
            jobs.command("true", CheckpointConfig=changes)
        error = refused.value.response["Error"]
        assert error["Code"] == "ValidationException" and field in error["Message"] and why in error["Message"], error
    jobs.put("conflict/a", "x")
    jobs.put("conflict/a/b", "x")
    with pytest.raises(ClientError, match="checkpointConfig.s3Uri"):
        jobs.command("true", **config("conflict"))


MORE_THAN_A_QUEUE_HOLDS = """
import os, time
os.chdir("/opt/ml/checkpoints")
end = time.time() + 3
mine = next((child for child in range(3) if os.fork() == 0), 3)
os.mkdir(f"a{mine}")
for file in range(60):
    open(f"a{mine}/{file}", "w").close()
while time.time() < end:
    for _ in range(50):
        os.rename(f"a{mine}", f"b{mine}")
        os.rename(f"b{mine}", f"a{mine}")
if mine == 3:
    open("last", "w").write("last")
"""


def test_a_job_ends_whatever_the_kernel_could_not_tell(jobs):
    """The kernel drops what does not fit into its queue, and the mark of the program's end with
    it.
    """
    name = jobs.python(MORE_THAN_A_QUEUE_HOLDS, **config("queue"))
    jobs.completed(name)
    assert saved(jobs, "queue", "last") == b"last"
    assert len(keys(jobs, "queue")) >= 4 * 60


def test_a_bucket_that_goes_away_is_told_and_waited_for(jobs):
    jobs.s3.create_bucket(Bucket="short-lived")
    uri = {"CheckpointConfig": {"S3Uri": "s3://short-lived/x"}}
    name = jobs.command("echo up; sleep 2; echo a > /opt/ml/checkpoints/a; while :; do sleep 0.1; done", **uri)
    jobs.saying(name, "up")
    jobs.s3.delete_bucket(Bucket="short-lived")
    eventually(
        lambda: any("checkpoint a is not saved" in line and "short-lived" in line for line in jobs.logs(name)["algo-1"])
    )
    jobs.s3.create_bucket(Bucket="short-lived")
    eventually(lambda: receipts(jobs, name))
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    jobs.wait(name)


@pytest.mark.parametrize("kind", ["ordinary user", "plain processes"])
def test_rootless_and_plain_processes_mirror_too(make_house, kind):
    options = {"ordinary user": {"ordinary": True}, "plain processes": {"variables": {"SHOAL_ISOLATION": "processes"}}}
    jobs = Jobs(make_house(**options[kind]))
    jobs.put("kind/old", "old")
    line = (
        "cd ${SAGEMAKER_BASE_DIR:-/opt/ml}/checkpoints; cat old; echo; echo new > old; mkdir -p sub; echo sub > sub/new; "
        "echo open > held; exec 3>>held; echo half >&3; sleep 2"
    )
    name = jobs.command(line, **config("kind"))
    eventually(lambda: saved(jobs, "kind", "sub/new") == b"sub\n")
    assert saved(jobs, "kind", "held") in (None, b"open\n"), "somebody is still writing it"
    jobs.completed(name)
    assert jobs.lines(name) == ["old"]
    assert {path: saved(jobs, "kind", path) for path in keys(jobs, "kind")} == {
        "old": b"new\n",
        "sub/new": b"sub\n",
        "held": b"open\nhalf\n",
    }
